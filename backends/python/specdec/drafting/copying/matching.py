"""Finds earlier copies of the end of a text, for the copy drafters."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specdec.token_ids import TokenIds

MIN_MATCH = 2
"""Fewest tokens that must match by default; a single token matches nearly everywhere."""

MAX_MATCH = 16
"""Most tokens that are compared; all matches of this length count as equally good."""


def longest_matches(
    text: TokenIds, tail: TokenIds, min_match: int = MIN_MATCH
) -> tuple[npt.NDArray[np.int64], int]:
    """Find the longest copies of the end of `tail` in `text`; return their ends and their length.

    `text` and `tail` are [n] int32. An end is the index in `text` after the copy, where its
    continuation starts. The ends are ascending. Copies have `min_match` (1 or more) to MAX_MATCH
    tokens; a copy at the very end of `text` has no continuation and does not count. Without any
    copy, return an empty array and 0.
    """
    none = np.zeros(0, dtype=np.int64)
    if len(tail) < min_match or len(text) <= min_match:
        return none, 0
    # Candidates are the ends of all copies of the last `min_match` tokens of `tail`.
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
