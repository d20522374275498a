"""Combines several drafters: the first that has a proposal drafts the round."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.rounds import Round
from specdec.token_ids import TokenIds


class FirstProposal:
    """A drafter that asks its members in order until one proposes; for targets without trees."""

    def __init__(self, members: Sequence[Drafter]) -> None:
        self._members = members

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        for member in self._members:
            found = member.propose(context, max_tokens)
            if found.tokens:
                return found
        return NO_PROPOSAL

    def observe(self, confirmed: Round) -> None:
        for member in self._members:
            member.observe(confirmed)
