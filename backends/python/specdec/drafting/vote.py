"""Several drafters, one chain: at each place the token that most of them propose."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round


class VoteDrafter:
    """Asks every member, one after another, and lets them vote.

    Where a tree keeps all guesses, this costs the target a single chain.
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
    """Majority per position; ties by summed probability, then by order. Each place on its own."""
    tokens: list[int] = []
    sources: list[int] = []
    for place in range(max((len(each.tokens) for each in proposals), default=0)):
        votes: dict[int, list[Proposal]] = {}
        for each in proposals:
            if place < len(each.tokens):
                votes.setdefault(each.tokens[place], []).append(each)
        # max() keeps the first of equals, and voters stand in their order.
        winner = max(votes, key=lambda token: (len(votes[token]), _trust(votes[token], place)))
        tokens.append(winner)
        sources.append(votes[winner][0].source)
    return Proposal(tuple(tokens), name, sources=tuple(sources)) if tokens else NO_PROPOSAL


def _trust(voters: Sequence[Proposal], place: int) -> float:
    return sum(math.exp(each.log_probs[place]) for each in voters if each.log_probs)
