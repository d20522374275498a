"""`specdec build distill`: train a small draft model on the target's own answers.

`steps` runs the steps over one work directory: `prompts` gathers prompts, `answers` lets the target
answer them, `training` trains the draft, and `evaluate` measures its acceptance. `checkpoint` is a
draft on disk, `network` the draft itself. The head commands and `refresh` use the same parts.
"""
