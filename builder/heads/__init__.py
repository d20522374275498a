"""`specdec build eagle3` and `medusa`: train draft heads that read the target's hidden states.

The steps are those of `builder/distill`, with the same prompts and answers. `eagle3` and `medusa`
are the networks, `learner` trains them, and `checkpoint` is a head on disk.
"""
