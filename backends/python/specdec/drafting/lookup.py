"""Prompt lookup: text that repeats itself is guessed from where it stood before."""

from __future__ import annotations

import numpy as np

from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round

MIN_MATCH = 2
"""Tokens that must match: one alone matches somewhere nearly always, and rarely for a reason."""

MAX_MATCH = 16
"""Tokens compared; among places that agree on so many, the latest is taken."""


class LookupDrafter:
    """Finds the latest of the longest earlier matches of the context's end, offers what followed.

    After Saxena's prompt lookup decoding (2023), with the longest match instead of the first.
    """

    def __init__(self, name: str, source: int, num_tokens: int) -> None:
        self._name = name
        self._source = source
        self._num_tokens = num_tokens

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        end = find_match(context)
        if end is None:
            return NO_PROPOSAL
        tokens = context[end : end + min(self._num_tokens, max_tokens)]
        return Proposal(tuple(tokens.tolist()), self._name, self._source)

    def observe(self, confirmed: Round) -> None:
        """Nothing to learn: the confirmed tokens are in the next context."""


def find_match(context: TokenIds) -> int | None:
    """Where an earlier copy of the context's end ends, or None for a match under MIN_MATCH."""
    length = len(context)
    if length <= MIN_MATCH:
        return None
    # Candidates: every earlier end of a MIN_MATCH-gram equal to the last one.
    equal = context[MIN_MATCH - 1 : -1] == context[-1]
    for back in range(1, MIN_MATCH):
        equal &= context[MIN_MATCH - 1 - back : -1 - back] == context[-1 - back]
    ends = np.flatnonzero(equal) + MIN_MATCH
    for matched in range(MIN_MATCH, MAX_MATCH):
        if len(ends) <= 1 or matched >= length:
            break
        longer = ends[(ends > matched) & (context[ends - 1 - matched] == context[-1 - matched])]
        if not len(longer):
            break
        ends = longer
    return int(ends[-1]) if len(ends) else None
