"""Combines several drafters in one chain by a vote at each position."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.rounds import Round
from specdec.token_ids import TokenIds


class VoteDrafter:
    """A drafter that asks its members one after another, and proposes what most of them propose.

    A tree would keep all drafts; a chain costs the target fewer rows.
    """

    def __init__(self, name: str, members: Sequence[Drafter]) -> None:
        self._name = name
        self._members = members

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        return elect([member.propose(context, max_tokens) for member in self._members], self._name)

    def observe(self, confirmed: Round) -> None:
        for member in self._members:
            member.observe(confirmed)


def elect(proposals: Sequence[Proposal], name: str) -> Proposal:
    """Return a chain with the token that most proposals have at each position.

    A tie is decided by the larger sum of probabilities, and then by the order of the proposals.
    Each position is decided on its own, whatever tokens the proposals have before it.
    """
    tokens: list[int] = []
    sources: list[int] = []
    for position in range(max((len(each.tokens) for each in proposals), default=0)):
        votes: dict[int, list[Proposal]] = {}
        for each in proposals:
            if position < len(each.tokens):
                votes.setdefault(each.tokens[position], []).append(each)
        # max() keeps the first of equals, and `votes` is in the order of the proposals.
        winner = max(
            votes, key=lambda token: (len(votes[token]), _probability_sum(votes[token], position))
        )
        tokens.append(winner)
        sources.append(votes[winner][0].source)
    return Proposal(tuple(tokens), name, sources=tuple(sources)) if tokens else NO_PROPOSAL


def _probability_sum(voters: Sequence[Proposal], position: int) -> float:
    return sum(math.exp(each.log_probs[position]) for each in voters if each.log_probs)
