"""The drafter for a head of the target: its draft comes with the target's previous answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.rounds import Round
from specdec.token_ids import TokenIds

TREE_DEPTH = 5
"""Most levels of a head's tree, in draft tokens."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """A chain or a tree that a head can draft; clients see each as a drafter of its own."""

    name: str
    """The drafter's name."""
    source: int
    """The drafter's number in `output_sources`."""
    num_tokens: int
    """Draft tokens in a round; for a tree, all its nodes."""
    is_tree: bool = False

    @property
    def depth(self) -> int:
        """Length of the longest path in draft tokens."""
        return min(TREE_DEPTH, self.num_tokens) if self.is_tree else self.num_tokens


class HeadDrafter:
    """A drafter that proposes the draft that came with the last round, and asks for the next."""

    def __init__(self, shape: HeadShape) -> None:
        self.shape = shape
        """Chain or tree for which the next calls of `propose` ask the head."""
        self._asked = shape
        self._ready = NO_PROPOSAL
        self._is_first_round = True

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:  # noqa: ARG002
        # This round confirms at least one token, so the next one has room for fewer draft tokens.
        # In the first round the head only reads the prompt: no draft may delay the first token.
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
        self._ready = Proposal(tokens, name, self._asked.source, parents=parents)

    def _cut(self, max_depth: int) -> Proposal:
        """Return the draft without tokens deeper than `max_depth`. They are sorted by depth."""
        ready = self._ready
        num_kept = sum(depth <= max_depth for depth in ready.depths)
        parents = ready.parents[:num_kept]
        return replace(ready, tokens=ready.tokens[:num_kept], parents=parents)
