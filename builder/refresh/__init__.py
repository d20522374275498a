"""`specdec build refresh`: train the served draft further and replace it on running servers.

`steps` runs the whole: `gathering` finds prompts, `learning` trains, `swapping` adds a version to
the model repository, and `trial` compares it with the old one on a running server (`triton`).
"""
