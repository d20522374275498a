"""Define the names that a request may give as its `drafter`, and check them."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.control.choices import NONE
from specdec.errors import InvalidRequestError
from specdec.serving.request_parameters import shown

LOOKUP, SUFFIX, PREDICTION = "lookup", "suffix", "prediction"
"""Names of the copy drafters; draft engines go by the names of their models."""

AUTO, TREE, VOTE = "auto", "tree", "vote"
"""`auto`: the controller chooses. `tree`: copy drafters and draft models together, as one tree.
`vote`: all draft models vote. Without speculation the name is NONE."""

ENGINE = "engine"
"""Drafter and verification mode of an engine that speculates inside, in outputs and metrics."""

RESERVED = (LOOKUP, SUFFIX, PREDICTION, AUTO, NONE, TREE, VOTE, ENGINE)
"""Names that no draft model, head or scripted drafter may have."""

HEAD_TREE = "_tree"
"""Suffix to the name of the target's head: the head's draft is a tree instead of a chain."""

JOIN = "+"
"""Separator of several drafters in one name, such as `lookup+draft`."""


def check_drafter(asked: str, drafters: Sequence[str]) -> str:
    """Return `asked` if the configured `drafters` can serve it.

    Raises InvalidRequestError for an unknown name and for a joined name with repetitions.
    """
    known = (AUTO, NONE, *drafters, TREE, VOTE)
    if asked in known:
        return asked
    names = asked.split(JOIN)
    if len(names) > 1 and len(set(names)) == len(names) and set(names) <= set(drafters):
        return asked
    raise InvalidRequestError(
        f"drafter must be one of {', '.join(known)}, or several of {', '.join(drafters)} joined "
        f"by {JOIN!r}; given {shown(asked)}"
    )
