"""The target's answers to the prompts, and what the target knows about each of their tokens.

`target_runner` runs the target over many sequences at once, `writer` lets it write answers, and
`reader` lets it read them again. `answering` does that for a file of prompts and keeps the result
in shards.
"""
