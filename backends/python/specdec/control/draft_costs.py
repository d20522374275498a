"""What guesses cost: by lead and load a line through their numbers, and how far each lies off it.

A head guesses inside the pass that verifies, and only both together are timed. What the pass would
have taken alone is taken off when the cost is asked for, by what is known of passes then: taken off
when the round came, a wrong belief of that moment would stay in the cost of the head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specdec.control.fits import RECENT_SAMPLES, Fit, Vector

NUM_FEATURES = 3
"""1, guesses, guesses of all who ask the lead."""

CAN_ONLY_ADD = np.array([False, True, True])
"""Which of them cannot make a draft shorter."""

HALF_TRUSTED = 48
"""Rounds with one number of guesses that make what they took half believed."""

PassCoefficients = Callable[[int], Vector]
"""Seconds of each feature of a pass, by load bucket."""


@dataclass(frozen=True, slots=True)
class Guessing:
    """Who makes how many guesses, and beside how many others."""

    lead: str
    bucket: int
    """Of the load."""
    num_tokens: int
    num_drafting: int
    """Requests for which the lead drafts at the moment."""

    @property
    def features(self) -> Vector:
        """As NUM_FEATURES has them."""
        return np.array([1.0, self.num_tokens, self.num_tokens * self.num_drafting])


@dataclass(slots=True)
class Bend:
    """The recent rounds with one number of guesses."""

    means: Vector
    """Of their seconds, their features, and those of the pass in them."""
    num_samples: int = 0

    def add(self, seconds: float, features: Vector, pass_features: Vector) -> None:
        """Of one round."""
        self.num_samples += 1
        share = max(1 / self.num_samples, 1 / RECENT_SAMPLES)
        self.means += share * (np.concatenate([[seconds], features, pass_features]) - self.means)

    def off_s(self, line: Vector, pass_coefficients: Vector) -> float:
        """How far they lie off the line, as far as that is believed by their number."""
        weight = min(self.num_samples, RECENT_SAMPLES)
        off = float(self.means @ np.concatenate([[1.0], -line, -pass_coefficients]))
        return weight / (weight + HALF_TRUSTED) * off


class DraftCosts:
    """Not thread-safe: the controller's lock is held around it."""

    def __init__(self, num_pass_features: int, passes: PassCoefficients) -> None:
        self.num_pass_features = num_pass_features
        self._passes = passes
        self.lines: dict[tuple[str, int], Fit] = {}
        """By lead and load bucket."""
        self.bends: dict[tuple[str, int, int], Bend] = {}
        """By lead, load bucket and guesses."""
        self._solved: dict[tuple[str, int], Vector] = {}
        """Lines, until there is enough that is new."""

    def is_timed(self, lead: str) -> bool:
        """Whether it is known what its guesses cost, at some load."""
        return any(name == lead for name, _ in self.lines)

    def num_timed(self, lead: str, bucket: int) -> int:
        """Rounds with its guesses that were timed at this load."""
        line = self.lines.get((lead, bucket))
        return line.num_samples if line else 0

    def solve_anew(self) -> None:
        """When it is asked for next: there is something new, of passes too."""
        self._solved.clear()

    def add(self, guessing: Guessing, seconds: float, pass_features: Vector | None) -> None:
        """`pass_features`: of the pass that is part of these seconds; None without one."""
        lead, bucket, features = guessing.lead, guessing.bucket, guessing.features
        inside = np.zeros(self.num_pass_features) if pass_features is None else pass_features
        bend = self.bends.setdefault((lead, bucket, guessing.num_tokens), self.no_bend())
        bend.add(seconds, features, inside)
        line = self.lines.setdefault((lead, bucket), Fit(NUM_FEATURES, self.num_pass_features))
        line.add(features, seconds, inside)
        if line.is_due:
            self._solved.clear()

    def no_bend(self) -> Bend:
        """Without rounds."""
        return Bend(np.zeros(1 + NUM_FEATURES + self.num_pass_features))

    def line_s(self, guessing: Guessing) -> float:
        """Seconds by the line alone; 0 of a lead that was never timed."""
        if not self.is_timed(guessing.lead):
            return 0.0
        return float(guessing.features @ self._line(guessing))

    def seconds(self, guessing: Guessing) -> float:
        """0 of a lead that was never timed; of a head's what they add, which may be less."""
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
