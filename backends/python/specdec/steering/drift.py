"""A drift test: finds that a drafter's acceptance has changed for good.

The drafter may be stale or repaired, or requests may have changed. Decaying estimates would follow
too, but only over hundreds of rounds of each task. All tasks together show it much sooner.
"""

from __future__ import annotations

from dataclasses import dataclass

EXPECTED_DRIFT = 0.2
"""Difference of the first token's acceptance from its estimate that does not count as a change."""

ALARM = 10.0
"""Sum of the differences beyond that, in draft tokens, at which a drafter counts as changed."""


@dataclass(slots=True)
class Drift:
    """Page's cumulative sums (1954) over first draft tokens of a drafter, one per direction."""

    worse: float = 0.0
    better: float = 0.0

    def add(self, surprise: float) -> bool:
        """Add a first draft token, and return whether the drafter has changed.

        `surprise` is 1 if the token was accepted, else 0, minus the acceptance estimated for it.
        A change resets the sums.
        """
        self.worse = max(0.0, self.worse - surprise - EXPECTED_DRIFT)
        self.better = max(0.0, self.better + surprise - EXPECTED_DRIFT)
        if max(self.worse, self.better) < ALARM:
            return False
        self.worse = self.better = 0.0
        return True
