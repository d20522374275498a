"""The interface between the loop and a drafter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from specdec.engines.protocol import Draft
from specdec.rounds import Round
from specdec.token_ids import TokenIds


@dataclass(frozen=True, slots=True)
class Proposal:
    """The draft tokens that a drafter proposes for a round; none if it has no proposal."""

    tokens: tuple[int, ...] = ()
    drafter: str | None = None
    """The drafter's name."""
    source: int = 0
    """The drafter's number in `output_sources`."""
    logits: npt.NDArray[np.float32] | None = field(default=None, compare=False)
    """Logits [tokens, vocab] from which the tokens were drawn, if verification needs them."""
    parents: tuple[int, ...] = ()
    """For a tree, the index in `tokens` of each token's parent, or -1 if it follows the context.
    Empty for a chain."""
    sources: tuple[int, ...] = ()
    """Number of the drafter of each token; empty if it is `source` for all."""
    log_probs: tuple[float, ...] = ()
    """The drafter's log-probability of each token; empty unless it was asked for them."""
    num_next: int | None = None
    """Number of draft tokens that the target's head is to propose: see `Draft.num_next`."""
    next_depth: int | None = None
    """Depth of the tree that the target's head is to propose: see `Draft.next_depth`."""
    num_plain: int = 0
    """Number of tokens to generate without speculation instead of this round; 0 for a round."""

    @property
    def draft(self) -> Draft:
        """The proposal as an engine takes it."""
        return Draft(
            self.tokens,
            self.logits,
            self.parents,
            num_next=self.num_next,
            next_depth=self.next_depth,
        )

    @property
    def depths(self) -> list[int]:
        """Depth of each token: 1 after the context, else 1 more than its parent's."""
        depths: list[int] = []
        for parent in self.parents or range(-1, len(self.tokens) - 1):
            depths.append(1 + (depths[parent] if parent >= 0 else 0))
        return depths

    def sources_of(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of the drafter that proposed each of the accepted `tokens`."""
        if not self.sources:
            return (self.source,) * len(tokens)
        return tuple(self.sources[node] for node in self.draft.path(tokens))


NO_PROPOSAL = Proposal()


class Drafter(Protocol):
    """The interface of a drafter for one request.

    A drafter raises no exceptions: if it fails, it has no proposal.
    """

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        """Return a proposal after `context`, at most `max_tokens` (≥ 1) tokens deep.

        `context` is [n] int32 and valid until the round ends.
        """

    def observe(self, confirmed: Round) -> None:
        """Take the result of a round, which another drafter may have drafted."""
