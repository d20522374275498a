"""The pace of a load without speculation, measured from time to time while no request speculates.

The fit of passes is no substitute: if nearly all requests speculate, it takes what they cost each
other for the cost of the pass itself. A single measurement is not enough either. It may come from a
bad moment, and nothing corrects it later, when all requests speculate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec.steering.fits import RECENT_SAMPLES, Recent

ENOUGH_STEPS, MANY_STEPS = 32, 128
"""Plain steps after which the pace is known: ENOUGH_STEPS while no request speculates, or
MANY_STEPS beside requests that do."""

AGAIN_AFTER = 16384
"""Reported rounds of speculation after which the pace is measured again. Answers that run then
lose their head until they end."""

KEPT_STEPS = 2 * ENOUGH_STEPS
"""Most weight, in steps, of the old measurement when the pace is measured again."""

HALF_TRUSTED = 12
"""Steps after which the measured mean gets half the weight, and the fit the other half."""


@dataclass(slots=True)
class Baseline:
    """The measured pace of one load bucket without speculation. Not thread-safe."""

    steps: Recent = field(default_factory=Recent)
    """Seconds of plain steps while no request speculated."""
    mean_context: float = 0.0
    """Mean context of `steps`, in tokens."""
    mean_inflight: float = 0.0
    """Mean requests in flight of `steps`; a load bucket is a range."""
    num_fresh: int = 0
    """Such steps since this measurement began."""
    num_in_company: int = 0
    """Plain steps beside requests that speculated, since then."""
    num_speculated: int = 0
    """Rounds of speculation since the pace has been known."""

    @property
    def is_known(self) -> bool:
        """Whether the pace is known, so that no request needs to stop speculating for it."""
        return self.num_fresh >= ENOUGH_STEPS or self.num_in_company >= MANY_STEPS

    @property
    def trust(self) -> float:
        """Weight of the measured mean against the fit, from 0 to 1; it grows with the steps."""
        return self.steps.num_samples / (self.steps.num_samples + HALF_TRUSTED)

    def add_step(
        self, seconds: float, num_context: int, num_inflight: int, *, is_alone: bool
    ) -> None:
        """Add a plain step; `is_alone`: whether no request speculated meanwhile."""
        if is_alone:
            self.steps.add(seconds)
            num_counted = min(self.steps.num_samples, RECENT_SAMPLES)
            self.mean_context += (num_context - self.mean_context) / num_counted
            self.mean_inflight += (num_inflight - self.mean_inflight) / num_counted
            self.num_fresh += 1
        else:
            self.num_in_company += 1

    def add_round(self) -> None:
        """Count a round of speculation, and after AGAIN_AFTER of them measure the pace again."""
        self.num_speculated += self.is_known
        if self.num_speculated >= AGAIN_AFTER:
            self.num_fresh = self.num_speculated = 0
            # If requests keep speculating, ENOUGH_STEPS steps beside them end the measurement.
            self.num_in_company = MANY_STEPS - ENOUGH_STEPS
            self.steps.num_samples = min(self.steps.num_samples, KEPT_STEPS)
