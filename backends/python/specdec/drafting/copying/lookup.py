"""Prompt lookup: proposes what followed the same tokens earlier in the request."""

from __future__ import annotations

from specdec.drafting.combining.late import LateDrafter
from specdec.drafting.context import DrafterContext
from specdec.drafting.copying.matching import longest_matches
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.rounds import Round
from specdec.steering.choices import SHORT_COPY
from specdec.token_ids import TokenIds

LONG_MATCH = 8
"""Least number of matching tokens that count as a copied passage, which is likely to go on."""


class LookupDrafter:
    """A drafter that finds the context's end earlier in the context, and proposes what followed.

    It takes the longest match, and the latest of several. This is Saxena's prompt lookup decoding
    (2023) with two changes: the longest match counts instead of the first, and longer matches lead
    to longer drafts.
    """

    def __init__(self, name: str, source: int, num_tokens: int, max_tokens: int) -> None:
        """Set the limits on draft tokens by the length of the match.

        They are `max_tokens` from LONG_MATCH tokens on, `num_tokens` for shorter matches, and at
        most SHORT_COPY for a single token.
        """
        self._name = name
        self._source = source
        self._num_tokens = num_tokens
        self._max_tokens = max_tokens

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        ends, matched = longest_matches(context, context, min_match=1)
        if not matched:
            return NO_PROPOSAL
        end, size = int(ends[-1]), min(self._limit_for(matched), max_tokens)
        return Proposal(tuple(context[end : end + size].tolist()), self._name, self._source)

    def observe(self, confirmed: Round) -> None:
        """Do nothing: the confirmed tokens are in the next context."""

    def _limit_for(self, matched: int) -> int:
        if matched == 1:
            return min(SHORT_COPY, self._num_tokens)
        return self._num_tokens if matched < LONG_MATCH else self._max_tokens


def build(context: DrafterContext) -> Drafter:
    """Return the lookup drafter of a request."""
    return LateDrafter(
        LookupDrafter(context.name, context.source, context.num_tokens, context.max_tokens)
    )
