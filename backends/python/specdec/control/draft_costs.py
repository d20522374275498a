"""What guesses cost: by lead and load a line through their numbers, and how far each lies off it.

A head guesses inside the pass that verifies, and only both together are timed. What the pass would
have taken alone is taken off when the cost is asked for, by what is known of passes then: taken off
when the round came, a wrong belief of that moment would stay in the cost of the head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specdec.control.fits import HALF_TRUSTED, RECENT_SAMPLES, Fit, Vector, learn

NUM_FEATURES = 3
"""1, guesses, guesses of all who ask the lead."""

CAN_ONLY_ADD = np.array([False, True, True])
"""Which of them cannot make a draft shorter."""

ALL_LOADS = -1
"""In place of a load bucket."""

PassCoefficients = Callable[[int], Vector]
"""Seconds of each feature of a pass, by load bucket."""


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

    def __init__(self, num_pass_features: int) -> None:
        self.num_pass_features = num_pass_features
        self.lines: dict[tuple[str, int], Fit] = {}
        """By lead and load bucket."""
        self.bends: dict[tuple[str, int, int], Bend] = {}
        """By lead, load bucket and guesses."""

    def is_timed(self, lead: str) -> bool:
        """Whether it is known what its guesses cost, at some load."""
        return (lead, ALL_LOADS) in self.lines

    def add(
        self,
        lead: str,
        bucket: int,
        num_tokens: int,
        num_drafting: int,
        seconds: float,
        pass_features: Vector | None,
    ) -> None:
        """`pass_features`: of the pass that is part of these seconds; None without one."""
        features = _features(num_tokens, num_drafting)
        inside = np.zeros(self.num_pass_features) if pass_features is None else pass_features
        bend = self.bends.setdefault((lead, bucket, num_tokens), self.no_bend())
        bend.add(seconds, features, inside)
        learn(self.lines, ((lead, bucket), (lead, ALL_LOADS)), features, seconds, inside)

    def no_bend(self) -> Bend:
        """Without rounds."""
        return Bend(np.zeros(1 + NUM_FEATURES + self.num_pass_features))

    def line_s(
        self,
        lead: str,
        bucket: int,
        num_tokens: int,
        num_drafting: int,
        passes: PassCoefficients,
    ) -> float:
        """Seconds by the line alone; 0 of a lead that was never timed."""
        if not self.is_timed(lead):
            return 0.0
        return float(_features(num_tokens, num_drafting) @ self._line(lead, bucket, passes))

    def seconds(
        self,
        lead: str,
        bucket: int,
        num_tokens: int,
        num_drafting: int,
        passes: PassCoefficients,
    ) -> float:
        """Of so many guesses; 0 of a lead that was never timed, so that it is tried."""
        if not self.is_timed(lead):
            return 0.0
        line = self._line(lead, bucket, passes)
        found = float(_features(num_tokens, num_drafting) @ line)
        bend = self.bends.get((lead, bucket, num_tokens))
        return max(0.0, found + (bend.off_s(line, passes(bucket)) if bend else 0.0))

    def _line(self, lead: str, bucket: int, passes: PassCoefficients) -> Vector:
        whole = self.lines[lead, ALL_LOADS]
        prior = whole.solve(np.zeros(NUM_FEATURES), CAN_ONLY_ADD, offsets=passes(ALL_LOADS))
        own = self.lines.get((lead, bucket))
        return prior if own is None else own.solve(prior, CAN_ONLY_ADD, offsets=passes(bucket))


def _features(num_tokens: int, num_drafting: int) -> Vector:
    return np.array([1.0, num_tokens, num_tokens * num_drafting])
