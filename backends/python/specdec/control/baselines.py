"""The pace of a load without speculation: measured while nobody speculates, now and then again.

A fit cannot know it: where nearly all speculate, what they cost each other looks like the pass
itself. And what was measured once, perhaps in a bad moment, would never be put right, since nobody
is without speculation any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.control.fits import RECENT_SAMPLES, Recent

ENOUGH_STEPS, MANY_STEPS = 32, 128
"""Steps of the target alone with nobody speculating beside it, after which the pace is known; or
steps in any company, where somebody always does."""

AGAIN_AFTER = 16384
"""Rounds of speculation that were told of: then the pace is measured again. Answers that are on
their way then do without a head to their end."""

KEPT_STEPS = 2 * ENOUGH_STEPS
"""What older steps weigh at most beside those that are measured again."""

HALF_TRUSTED = 12
"""Steps that make a mean half believed."""


@dataclass(slots=True)
class Baseline:
    """Of one load; not thread-safe."""

    steps: Recent = field(default_factory=Recent)
    mean_context: float = 0.0
    """Tokens, of these steps."""
    mean_inflight: float = 0.0
    """Requests, of these steps: a load is a range of them."""
    num_fresh: int = 0
    """Steps since the measuring began."""
    num_in_company: int = 0
    """Steps beside others who speculated, since then."""
    num_speculated: int = 0
    """Rounds since the pace was known."""

    @property
    def is_known(self) -> bool:
        """Nobody needs to stop speculating for it to be measured."""
        return self.num_fresh >= ENOUGH_STEPS or self.num_in_company >= MANY_STEPS

    @property
    def trust(self) -> float:
        """From 0 to 1, with the number of steps."""
        return self.steps.num_samples / (self.steps.num_samples + HALF_TRUSTED)

    def add_step(
        self, seconds: float, num_context: int, num_inflight: int, *, is_alone: bool
    ) -> None:
        """A step of the target alone; `is_alone`: while nobody speculated."""
        if is_alone:
            self.steps.add(seconds)
            num_counted = min(self.steps.num_samples, RECENT_SAMPLES)
            self.mean_context += (num_context - self.mean_context) / num_counted
            self.mean_inflight += (num_inflight - self.mean_inflight) / num_counted
            self.num_fresh += 1
        else:
            self.num_in_company += 1

    def add_round(self) -> None:
        """Of speculation."""
        self.num_speculated += self.is_known
        if self.num_speculated >= AGAIN_AFTER:
            self.num_fresh = self.num_speculated = 0
            # Where nobody else speculates, the next steps are alone; else it is not waited for.
            self.num_in_company = MANY_STEPS - ENOUGH_STEPS
            self.steps.num_samples = min(self.steps.num_samples, KEPT_STEPS)
