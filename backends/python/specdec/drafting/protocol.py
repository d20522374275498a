"""What the loop needs of a way to guess."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from specdec.engines.protocol import Draft, TokenIds
from specdec.rounds import Round


@dataclass(frozen=True, slots=True)
class Proposal:
    """Guessed tokens and whose they are; no tokens means that there is nothing to offer."""

    tokens: tuple[int, ...] = ()
    drafter: str | None = None
    source: int = 0
    logits: npt.NDArray[np.float32] | None = field(default=None, compare=False)
    """[tokens, vocab]: what they were drawn from, where the verification needs it."""
    parents: tuple[int, ...] = ()
    """For a tree: the place in `tokens` that each follows, -1 the context. A chain has none."""
    sources: tuple[int, ...] = ()
    """Who proposed each token, where it is not `source` for all."""
    log_probs: tuple[float, ...] = ()
    """How likely its drafter found each token, where that is asked for."""
    num_next: int | None = None
    next_depth: int | None = None
    """Guesses to come with the target's answer, these two: see Draft."""
    num_plain: int = 0
    """Instead of guesses: so many tokens are to come from the target alone."""

    @property
    def draft(self) -> Draft:
        return Draft(
            self.tokens,
            self.logits,
            self.parents,
            num_next=self.num_next,
            next_depth=self.next_depth,
        )

    @property
    def depths(self) -> list[int]:
        """Of each token: 1 behind the context, one more behind each."""
        depths: list[int] = []
        for parent in self.parents or range(-1, len(self.tokens) - 1):
            depths.append(1 + (depths[parent] if parent >= 0 else 0))
        return depths

    def sources_of(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Who proposed each of the accepted `tokens`."""
        if not self.sources:
            return (self.source,) * len(tokens)
        return tuple(self.sources[node] for node in self.draft.path(tokens))


NO_PROPOSAL = Proposal()


class Drafter(Protocol):
    """Guesses for one request. A drafter never raises: one that fails has nothing to offer."""

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        """Up to `max_tokens` (≥ 1) tokens that may follow `context` [n] int32."""

    def observe(self, confirmed: Round) -> None:
        """Is told what became of the round."""
