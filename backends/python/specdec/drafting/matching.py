"""Where a text's end has stood before: what drafters that copy have in common."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec.engines.protocol import TokenIds

MIN_MATCH = 2
"""Tokens that must match: one alone matches somewhere nearly always, and rarely for a reason."""

MAX_MATCH = 16
"""Tokens compared; places that agree on so many are equally good."""


def longest_matches(text: TokenIds, tail: TokenIds) -> tuple[npt.NDArray[np.int64], int]:
    """The ends in `text` of its longest copies of the end of `tail`, and how long they are.

    An end is the place behind the copy, where its continuation starts; a copy without one does not
    count. Copies are MIN_MATCH to MAX_MATCH tokens long; without any the array is empty.
    """
    none = np.zeros(0, dtype=np.int64)
    if len(tail) < MIN_MATCH or len(text) <= MIN_MATCH:
        return none, 0
    # Candidates: every end of a MIN_MATCH-gram equal to the tail's last one.
    equal = text[MIN_MATCH - 1 : -1] == tail[-1]
    for back in range(1, MIN_MATCH):
        equal &= text[MIN_MATCH - 1 - back : -1 - back] == tail[-1 - back]
    ends = np.flatnonzero(equal) + MIN_MATCH
    if not len(ends):
        return none, 0
    matched = MIN_MATCH
    while matched < min(MAX_MATCH, len(tail)):
        longer = ends[(ends > matched) & (text[ends - 1 - matched] == tail[-1 - matched])]
        if not len(longer):
            break
        ends, matched = longer, matched + 1
    return ends, matched
