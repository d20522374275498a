"""What one pass of the target came to: the loop makes it, drafters and statistics read it."""

from __future__ import annotations

from dataclasses import dataclass

TARGET_SOURCE = 0
"""`output_sources` of a token that the target said itself."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one target pass confirmed. Times are seconds spent waiting for each engine."""

    tokens: tuple[int, ...]
    num_drafted: int
    num_accepted: int
    drafter: str | None
    accepted_sources: tuple[int, ...]
    """Who proposed each accepted token; the rest are the target's own."""
    ended: bool
    """The target said its end token, which is not among `tokens`."""
    draft_s: float
    target_s: float
    log_probs: tuple[float, ...] = ()
    """The target's, of `tokens`, where the request wants them."""
    next_drafts: tuple[int, ...] = ()
    """What the target's drafting head guesses behind the tokens, where it is asked."""
    next_parents: tuple[int, ...] = ()
    """For a tree of them: see Draft."""

    @property
    def num_steps(self) -> int:
        """Passes of the target: more than one where it answered several plain steps at a time."""
        return max(1, len(self.tokens) - self.num_accepted)

    @property
    def sources(self) -> tuple[int, ...]:
        """Who proposed each token: the drafter's number, or 0 for the target itself."""
        num_own = len(self.tokens) - self.num_accepted
        return self.accepted_sources + (TARGET_SOURCE,) * num_own
