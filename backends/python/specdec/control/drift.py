"""Whether a drafter has become another: gone stale, mended, or asked for other things than before.

Estimates that fade with each round would follow too, but over hundreds of rounds of every task.
What all tasks see together tells much sooner.
"""

from __future__ import annotations

from dataclasses import dataclass

EXPECTED_DRIFT = 0.2
"""By which first guesses may be better or worse than expected of their tasks without a meaning."""

ALARM = 10.0
"""Sum of what is beyond, in guesses, at which a drafter is taken to have changed."""


@dataclass(slots=True)
class Drift:
    """Of one drafter: Page's cumulative sums (1954), one for each direction, over first guesses."""

    worse: float = 0.0
    better: float = 0.0

    def has_changed(self, surprise: float) -> bool:
        """With one guess more; `surprise`: 1 if it stood, else 0, less what its task expected."""
        self.worse = max(0.0, self.worse - surprise - EXPECTED_DRIFT)
        self.better = max(0.0, self.better + surprise - EXPECTED_DRIFT)
        if max(self.worse, self.better) < ALARM:
            return False
        self.worse = self.better = 0.0
        return True
