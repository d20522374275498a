"""Several drafters at once: their guesses merged into one tree (Miao et al. 2024, SpecInfer)."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round


class TreeDrafter:
    """Asks every member; guesses that begin alike share their nodes.

    A token that several members propose counts for the first of them.
    """

    def __init__(self, name: str, members: Sequence[Drafter], max_nodes: int) -> None:
        """`max_nodes`: the engine's limit on drafted tokens; the first members' come first."""
        self._name = name
        self._members = members
        self._max_nodes = max_nodes

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        proposals = [member.propose(context, max_tokens) for member in self._members]
        return merge([each for each in proposals if each.tokens], self._name, self._max_nodes)

    def observe(self, confirmed: Round) -> None:
        for member in self._members:
            member.observe(confirmed)


def merge(proposals: Sequence[Proposal], name: str, max_nodes: int) -> Proposal:
    """One proposal of all; where they make a single chain, a chain, for engines without trees."""
    tokens: list[int] = []
    parents: list[int] = []
    sources: list[int] = []
    place_of: dict[tuple[int, int], int] = {}
    for proposal in proposals:
        place = -1
        for token in proposal.tokens:
            following = place_of.get((place, token))
            if following is None:
                if len(tokens) == max_nodes:
                    break
                following = place_of[place, token] = len(tokens)
                tokens.append(token)
                parents.append(place)
                sources.append(proposal.source)
            place = following
    if not tokens:
        return NO_PROPOSAL
    is_chain = parents == list(range(-1, len(tokens) - 1))
    return Proposal(
        tuple(tokens),
        name,
        sources[0],
        parents=() if is_chain else tuple(parents),
        sources=tuple(sources),
    )
