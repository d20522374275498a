"""`specdec build`: prepare models for the server.

`cli` names the commands and the module of each. Commands that belong together share a package. What
several packages need is in `checkpoints` (reading weights and tokenizers), `description` (pair
files) and the modules of this folder.
"""
