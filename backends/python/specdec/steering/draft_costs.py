"""Costs of drafts: for each drafter and load, a line over draft lengths and each length's offset.

A head drafts inside the pass that verifies, and only both together are timed. The pass's own time
is subtracted when a cost is asked for, by the fit of passes at that moment. If it were subtracted
when the round is added, an early error of that fit would stay in the head's cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specdec.steering.fits import RECENT_SAMPLES, Fit, Vector

NUM_FEATURES = 3
"""Number of features of a draft: 1, its draft tokens, and those of all requests that use the
drafter."""

CAN_ONLY_ADD = np.array([False, True, True])
"""Mask of the features whose coefficients cannot be negative."""

HALF_TRUSTED = 48
"""Rounds with one draft length after which half of their offset from the line counts."""

PassCoefficients = Callable[[int], Vector]
"""Function from a load bucket to the seconds of each feature of a pass."""


@dataclass(frozen=True, slots=True)
class Guessing:
    """A draft whose cost is measured or predicted."""

    lead: str
    """Name of the drafter."""
    bucket: int
    """Load bucket."""
    num_tokens: int
    """Draft tokens."""
    num_drafting: int
    """Requests in flight for which the drafter drafts."""

    @property
    def features(self) -> Vector:
        """Features, [NUM_FEATURES] float64, in the order given there."""
        return np.array([1.0, self.num_tokens, self.num_tokens * self.num_drafting])


@dataclass(slots=True)
class Bend:
    """Recent rounds with one draft length, whose mean cost may lie off the line."""

    means: Vector
    """Means of seconds, draft features and features of the pass included, in one vector."""
    num_samples: int = 0

    def add(self, seconds: float, features: Vector, pass_features: Vector) -> None:
        """Add a round."""
        self.num_samples += 1
        share = max(1 / self.num_samples, 1 / RECENT_SAMPLES)
        self.means += share * (np.concatenate([[seconds], features, pass_features]) - self.means)

    def off_s(self, line: Vector, pass_coefficients: Vector) -> float:
        """Return the mean's offset from the line in seconds, smaller if the rounds are few."""
        weight = min(self.num_samples, RECENT_SAMPLES)
        off = float(self.means @ np.concatenate([[1.0], -line, -pass_coefficients]))
        return weight / (weight + HALF_TRUSTED) * off


class DraftCosts:
    """Learned costs of drafts. Callers hold the controller's lock."""

    def __init__(self, num_pass_features: int, passes: PassCoefficients) -> None:
        self.num_pass_features = num_pass_features
        self._passes = passes
        self.lines: dict[tuple[str, int], Fit] = {}
        """Fits by drafter and load bucket."""
        self.bends: dict[tuple[str, int, int], Bend] = {}
        """Recent rounds by drafter, load bucket and draft length."""
        self._solved: dict[tuple[str, int], Vector] = {}
        """Coefficients of lines, kept until there are enough new samples."""

    def is_timed(self, lead: str) -> bool:
        """Return whether drafts of `lead` were timed at any load."""
        return any(name == lead for name, _ in self.lines)

    def num_timed(self, lead: str, bucket: int) -> int:
        """Return how many rounds with drafts of `lead` were timed at this load."""
        line = self.lines.get((lead, bucket))
        return line.num_samples if line else 0

    def solve_anew(self) -> None:
        """Drop the solved lines, so that the next use includes new samples, of passes too."""
        self._solved.clear()

    def add(self, guessing: Guessing, seconds: float, pass_features: Vector | None) -> None:
        """Learn from a draft; `pass_features`: those of the pass in `seconds`, None without one."""
        lead, bucket, features = guessing.lead, guessing.bucket, guessing.features
        inside = np.zeros(self.num_pass_features) if pass_features is None else pass_features
        bend = self.bends.setdefault((lead, bucket, guessing.num_tokens), self.no_bend())
        bend.add(seconds, features, inside)
        line = self.lines.setdefault((lead, bucket), Fit(NUM_FEATURES, self.num_pass_features))
        line.add(features, seconds, inside)
        if line.is_due:
            self._solved.clear()

    def no_bend(self) -> Bend:
        """Return a `Bend` without rounds."""
        return Bend(np.zeros(1 + NUM_FEATURES + self.num_pass_features))

    def line_s(self, guessing: Guessing) -> float:
        """Return seconds by the line alone; 0 for a drafter that was never timed."""
        if not self.is_timed(guessing.lead):
            return 0.0
        return float(guessing.features @ self._line(guessing))

    def seconds(self, guessing: Guessing) -> float:
        """Predict seconds of a draft; 0 for a drafter that was never timed.

        For a head it is the addition to the pass, which may come out negative.
        """
        if not self.is_timed(guessing.lead):
            return 0.0
        line = self._line(guessing)
        found = float(guessing.features @ line)
        bend = self.bends.get((guessing.lead, guessing.bucket, guessing.num_tokens))
        if bend is not None:
            found += bend.off_s(line, self._passes(guessing.bucket))
        return found

    def _line(self, guessing: Guessing) -> Vector:
        key = guessing.lead, guessing.bucket
        if key not in self._solved:
            self._solved[key] = self._solve(*key)
        return self._solved[key]

    def _solve(self, lead: str, bucket: int) -> Vector:
        loads = {
            load: line.without(self._passes(load))
            for (name, load), line in self.lines.items()
            if name == lead
        }
        whole = Fit.total([*loads.values()]).solve(np.zeros(NUM_FEATURES), CAN_ONLY_ADD)
        return loads[bucket].solve(whole, CAN_ONLY_ADD) if bucket in loads else whole
