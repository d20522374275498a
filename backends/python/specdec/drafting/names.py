"""Define the names that a request may give as its `drafter`, and check them."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.errors import InvalidRequestError, shown
from specdec.steering.choices import NONE

COPY_DRAFTERS = LOOKUP, SUFFIX, PREDICTION = "lookup", "suffix", "prediction"
"""Names of the copy drafters. A draft model's drafter has the name of its Triton model."""

AUTO, TREE, VOTE = "auto", "tree", "vote"
"""`auto`: the controller chooses. `tree`: copy drafters and draft models draft one tree together.
`vote`: all draft models vote. NONE means no speculation."""

ENGINE = "engine"
"""Name of both drafter and verification mode of an engine that speculates inside, for outputs and
metrics."""

HEAD_TREE = "_tree"
"""Suffix of a head's name, for the drafter in which the head drafts a tree instead of a chain."""

JOIN = "+"
"""Separator of drafters in a joined name, such as `lookup+draft`."""


def joined(asked: str) -> tuple[str, ...]:
    """Return the drafters in a joined name; a single name is returned as it is."""
    return tuple(asked.split(JOIN))


def check_drafter(asked: str, drafters: Sequence[str]) -> str:
    """Return the drafter name `asked` if it is valid with the configured `drafters`.

    Raises InvalidRequestError for an unknown name, and for a joined name that repeats a drafter.
    """
    known = (AUTO, NONE, *drafters, TREE, VOTE)
    if asked in known:
        return asked
    names = joined(asked)
    if len(names) > 1 and len(set(names)) == len(names) and set(names) <= set(drafters):
        return asked
    raise InvalidRequestError(
        f"drafter must be one of {', '.join(known)}, or several of {', '.join(drafters)} joined "
        f"by {JOIN!r}; given {shown(asked)}"
    )
