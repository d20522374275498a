"""Training of a draft of any kind on the target's answers.

`trainer` runs the training of a `Learner`, which knows the network and its loss. `draft_model` is
the learner of a draft model; that of a head is in `specdec.builder.heads`.
"""
