"""Where a text's end has stood before: what drafters that copy have in common."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec.engines.protocol import TokenIds

MIN_MATCH = 2
"""Tokens that must match, if nothing else is said: one alone does nearly everywhere."""

MAX_MATCH = 16
"""Tokens compared; places that agree on so many are equally good."""


def longest_matches(
    text: TokenIds, tail: TokenIds, min_match: int = MIN_MATCH
) -> tuple[npt.NDArray[np.int64], int]:
    """The ends in `text` of its longest copies of the end of `tail`, and how long they are.

    An end is the place behind the copy, where its continuation starts; a copy without one does not
    count. Copies are `min_match` to MAX_MATCH tokens long; without any the array is empty.
    """
    none = np.zeros(0, dtype=np.int64)
    if len(tail) < min_match or len(text) <= min_match:
        return none, 0
    # Candidates: every end of `min_match` tokens equal to the tail's last ones.
    equal = text[min_match - 1 : -1] == tail[-1]
    for back in range(1, min_match):
        equal &= text[min_match - 1 - back : -1 - back] == tail[-1 - back]
    ends = np.flatnonzero(equal) + min_match
    if not len(ends):
        return none, 0
    matched = min_match
    while matched < min(MAX_MATCH, len(tail)):
        longer = ends[(ends > matched) & (text[ends - 1 - matched] == tail[-1 - matched])]
        if not len(longer):
            break
        ends, matched = longer, matched + 1
    return ends, matched
