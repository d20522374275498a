"""What a request may ask for as its `drafter`."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.control.choices import NONE
from specdec.errors import InvalidRequestError
from specdec.serving.request_parameters import shown

LOOKUP, SUFFIX, PREDICTION = "lookup", "suffix", "prediction"
"""Drafters beside the draft engines, which go by their model names."""

AUTO, TREE, VOTE = "auto", "tree", "vote"
"""The controller chooses; all drafters at once; a vote of the draft engines. NONE asks nobody."""

ENGINE = "engine"
"""Whatever drafts inside an engine that speculates by itself, and the rule of its verification."""

RESERVED = (LOOKUP, SUFFIX, PREDICTION, AUTO, NONE, TREE, VOTE, ENGINE)

HEAD_TREE = "_tree"
"""Behind the name of the target's drafting head: its guesses as a tree instead of a chain."""

JOIN = "+"
"""Names joined by it are a tree of these drafters."""


def check_drafter(asked: str, drafters: Sequence[str]) -> str:
    """`asked`, if the configured `drafters` can serve it. Raises InvalidRequestError."""
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
