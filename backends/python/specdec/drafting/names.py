"""Define the names that a request may give as its `drafter`."""

from __future__ import annotations

COPY_DRAFTERS = LOOKUP, SUFFIX, PREDICTION = "lookup", "suffix", "prediction"
"""Names of the copy drafters. A draft model's drafter has the name of its Triton model."""

GRAMMAR = "grammar"
"""Name of the drafter of tokens that a request's guide forces."""

AUTO, TREE, VOTE = "auto", "tree", "vote"
"""`auto`: the controller chooses. `tree`: copy drafters and draft models draft one tree together.
`vote`: all draft models vote. The name for no speculation is NONE in steering/choices.py."""

ENGINE = "engine"
"""Name of both drafter and verification mode of an engine that speculates inside, for outputs and
metrics."""

TREE_SUFFIX = "_tree"
"""Suffix of a head's name, for the drafter in which the head drafts a tree instead of a chain."""

JOIN = "+"
"""Separator of drafters in a joined name, such as `lookup+draft`."""
