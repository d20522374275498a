"""Prompt lookup: text that repeats itself is guessed from where it stood before."""

from __future__ import annotations

from specdec.drafting.matching import longest_matches
from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round


class LookupDrafter:
    """Finds the latest of the longest earlier matches of the context's end, offers what followed.

    After Saxena's prompt lookup decoding (2023), with the longest match instead of the first.
    """

    def __init__(self, name: str, source: int, num_tokens: int) -> None:
        self._name = name
        self._source = source
        self._num_tokens = num_tokens

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        ends, _ = longest_matches(context, context)
        if not len(ends):
            return NO_PROPOSAL
        end = int(ends[-1])
        tokens = context[end : end + min(self._num_tokens, max_tokens)]
        return Proposal(tuple(tokens.tolist()), self._name, self._source)

    def observe(self, confirmed: Round) -> None:
        """Nothing to learn: the confirmed tokens are in the next context."""
