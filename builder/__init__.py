"""`specdec build`: prepare models for the server.

`cli` names the commands, and each command has a room of its own below. What several rooms share is
in `checkpoints` (reading weights and tokenizers), `description` (pair files) and the modules
of this folder.
"""
