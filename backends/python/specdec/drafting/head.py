"""A drafting head of the target: its guesses come with the target's last answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round

TREE_DEPTH = 5
"""Guesses of a head's tree that may follow each other, at most."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """What a head is asked for: a chain or a tree, each a drafter of its own to the outside."""

    name: str
    source: int
    num_tokens: int
    is_tree: bool = False

    @property
    def depth(self) -> int:
        return min(TREE_DEPTH, self.num_tokens) if self.is_tree else self.num_tokens


class HeadDrafter:
    """Offers what came with the last round, and asks for what is to come with this one."""

    def __init__(self, shape: HeadShape) -> None:
        self.shape = shape
        """Of what the next rounds ask for."""
        self._asked = shape
        self._guesses = NO_PROPOSAL
        self._is_first_round = True

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:  # noqa: ARG002
        # Behind the guesses and the token that follows them; the last one is never worth guessing.
        # The first token does not wait for guesses.
        self._asked = shape = self.shape
        depth = 0 if self._is_first_round else min(shape.depth, max(0, max_tokens - 1))
        offer = self._cut(max_tokens)
        if not shape.is_tree:
            return replace(offer, num_next=depth)
        return replace(offer, num_next=shape.num_tokens if depth else 0, next_depth=depth or None)

    def observe(self, confirmed: Round) -> None:
        self._is_first_round = False
        tokens, parents = confirmed.next_drafts, confirmed.next_parents
        name = self._asked.name if tokens else None
        self._guesses = Proposal(tokens, name, self._asked.source, parents=parents)

    def _cut(self, max_depth: int) -> Proposal:
        """The guesses, which come depth by depth, as deep as they may be."""
        guesses = self._guesses
        num_kept = sum(depth <= max_depth for depth in guesses.depths)
        parents = guesses.parents[:num_kept]
        return replace(guesses, tokens=guesses.tokens[:num_kept], parents=parents)
