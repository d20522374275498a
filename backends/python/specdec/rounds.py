"""The result of one round: the loop makes it, drafters and statistics read it."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.token_ids import TopLogProbs

TARGET_SOURCE = 0
"""Number in `output_sources` for a token that the target generated itself."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round, or of one response of the target without speculation."""

    tokens: tuple[int, ...]
    """Confirmed tokens: the accepted draft tokens, then the target's own."""
    num_draft_tokens: int
    """Number of draft tokens that the target verified."""
    num_accepted: int
    """Number of draft tokens that the target accepted."""
    drafter: str | None
    """Name of the drafter; None without a draft."""
    accepted_sources: tuple[int, ...]
    """Number of the drafter that proposed each accepted token, as in `output_sources`."""
    ended: bool
    """Whether the target generated its end token, which is not among `tokens`."""
    draft_s: float
    """Seconds spent waiting for the drafter."""
    target_s: float
    """Seconds spent waiting for the target."""
    log_probs: tuple[float, ...] = ()
    """The target's log-probability of each of `tokens`; empty unless the request asks for them."""
    top_log_probs: tuple[TopLogProbs, ...] = ()
    """The most likely tokens at the position of each of `tokens`; empty unless asked for."""
    next_drafts: tuple[int, ...] = ()
    """Draft tokens that the target's head proposes after `tokens`; empty unless it was asked."""
    next_parents: tuple[int, ...] = ()
    """Parents of `next_drafts` if they form a tree, as in `Draft.parents`."""
    is_followed: bool = False
    """Whether the next round came with it, so that the tokens of both can be sent together."""

    @property
    def num_passes(self) -> int:
        """Number of the target's passes: above 1 only if a response holds several plain steps."""
        return max(1, len(self.tokens) - self.num_accepted)

    @property
    def sources(self) -> tuple[int, ...]:
        """Number of the drafter that proposed each of `tokens`; 0 for the target's own."""
        num_own = len(self.tokens) - self.num_accepted
        return self.accepted_sources + (TARGET_SOURCE,) * num_own
