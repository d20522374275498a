"""Prompt lookup: text that repeats itself is guessed from where it stood before."""

from __future__ import annotations

from specdec.control.choices import SHORT_COPY
from specdec.drafting.matching import longest_matches
from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round

LONG_MATCH = 8
"""So many matching tokens are a copy: it goes on for long."""


class LookupDrafter:
    """Finds the latest of the longest earlier matches of the context's end, offers what followed.

    After Saxena's prompt lookup decoding (2023), with the longest match instead of the first, and
    with more guesses the longer it is.
    """

    def __init__(self, name: str, source: int, num_tokens: int, max_tokens: int) -> None:
        """`max_tokens` guesses behind a long match, `num_tokens` behind others."""
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._max_tokens = max_tokens

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        ends, matched = longest_matches(context, context, min_match=1)
        if not matched:
            return NO_PROPOSAL
        end, size = int(ends[-1]), min(self._trust(matched), max_tokens)
        return Proposal(tuple(context[end : end + size].tolist()), self._name, self._source)

    def observe(self, confirmed: Round) -> None:
        """Nothing to learn: the confirmed tokens are in the next context."""

    def _trust(self, matched: int) -> int:
        if matched == 1:
            return min(SHORT_COPY, self._num_tokens)
        return self._num_tokens if matched < LONG_MATCH else self._max_tokens
