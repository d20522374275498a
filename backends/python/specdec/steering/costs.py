"""Costs of rounds, learned from the rounds themselves: no profile is needed beforehand.

A round's cost is a mean by drafter, draft length and load, shrunk towards a linear fit: a pass has
a fixed cost, and costs for its rows, its context, requests that run round by round, prompts that
are read meanwhile, and draft tokens. The fit of a load is shrunk towards the fit over all loads.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from specdec.steering.estimates import PRIOR_ROUNDS, Array, Means, solve, usual_features
from specdec.steering.steps import NUM_DRAFT, NUM_PASS, Step, StepKey, load_bucket

MAX_OUTLIER = 4.0
"""Most time that a step counts, as a multiple of its predicted time: a stall says little about
passes."""

MUCH_FASTER = 2
"""Steps that take less than 1 / MUCH_FASTER of their predicted time show that other programs slowed
the earlier ones."""

MAX_LATE = 2 * PRIOR_ROUNDS
"""Most steps that count as delayed by a stall. On a machine that has become slower, all steps look
delayed until their time has been learned."""

PART_SHARE = 0.03
"""Prior cost of a feature at its usual value (`usual_features`), as a share of a mean step. It is
also the least time that is predicted, as a share of the fixed cost of a pass."""


class ReadingFeatures(NamedTuple):
    """The features on which the time to read a prompt depends linearly."""

    one: float
    """1, for the fixed cost."""
    num_tokens: float
    """Tokens of the prompt."""
    head_one: float
    """1 if a head reads the prompt too."""
    head_num_tokens: float
    """Tokens that a head reads; 0 without one."""


NUM_READING = len(ReadingFeatures._fields)


@dataclass(frozen=True, slots=True)
class _Line:
    """The linear fit of one load: seconds per unit of each feature, without and with a drafter."""

    plain: Array
    by_drafter: dict[str, Array]

    def coefficients(self, drafter: str) -> Array:
        """Return the coefficients of a step's features."""
        return self.by_drafter.get(drafter, self.plain)


class _Pace:
    """Finds the steps of one load that are much faster than predicted."""

    def __init__(self) -> None:
        self.row: list[tuple[Step, float]] = []
        """The newest steps and their seconds, if all were much faster; they are not learned yet."""
        self._num_late = 0.0
        """Steps delayed by a stall. Their responses come one after another without waiting."""

    def count(self, share: float) -> bool:
        """Count a step that took `share` of its predicted time; return whether it was much faster.

        A response that a stall has delayed says nothing about the time of its step.
        """
        self._num_late = min(MAX_LATE, max(0.0, self._num_late + share - 1))
        return MUCH_FASTER * share < 1 and self._num_late == 0


class CostEstimates:
    """Learned costs of steps and of prompts. Callers hold the controller's lock."""

    def __init__(self) -> None:
        self._steps: Means[StepKey] = Means()
        """Products of (seconds, features) by drafter, draft length and load bucket."""
        self._readings: Means[tuple[str]] = Means()
        """Products of (seconds, features of a prompt) by draft engine; "" for first rounds."""
        self._lines: dict[int, _Line] = {}
        """Fits by load bucket, kept until there are enough new steps."""
        self._num_new = 0
        self._first: list[tuple[Step, float]] = []
        """The first steps and their seconds, until there are PRIOR_ROUNDS of them."""
        self._paces: dict[int, _Pace] = defaultdict(_Pace)
        """Pace by load bucket."""

    @property
    def is_known(self) -> bool:
        """Whether the first PRIOR_ROUNDS steps have been timed."""
        return bool(self._steps)

    def num_timed(self, drafter: str, num_inflight: int, now_s: float) -> float:
        """Return the decayed number of steps with this drafter at this load."""
        bucket = load_bucket(num_inflight)
        return sum(
            mean.weight_at(now_s)
            for key, mean in self._steps.items()
            if (key.drafter, key.bucket) == (drafter, bucket)
        )

    def is_timed(self, drafter: str) -> bool:
        """Return whether steps with this drafter were timed at any load."""
        return any(key.drafter == drafter for key, _ in self._steps.items())

    def add(self, step: Step, seconds: float, now_s: float) -> None:
        """Learn from a step.

        If PRIOR_ROUNDS steps in a row at one load are much faster than predicted, other programs
        slowed the earlier ones, and all earlier times of this load are forgotten. Otherwise a
        drafter that was timed then would look slow for as long as it is not chosen.
        """
        if not self.is_known:
            self._first.append((step, seconds))
            if len(self._first) == PRIOR_ROUNDS:
                self._learn_all(self._first, now_s)
            return
        bucket, predicted_s = step.key.bucket, self._expected(step, now_s)[0]
        pace = self._paces[bucket]
        if pace.count(seconds / predicted_s) and self._is_known_at(step, now_s):
            pace.row.append((step, seconds))
            if len(pace.row) < PRIOR_ROUNDS:
                return
            self._steps.forget(lambda key: key.bucket == bucket)
            self._readings = Means()
            self._lines.clear()
        else:
            self._learn(step, min(seconds, MAX_OUTLIER * predicted_s), now_s)
        self._learn_all(pace.row, now_s)
        pace.row.clear()

    def predict(self, step: Step, now_s: float) -> tuple[float, float]:
        """Return the seconds expected of a step, and their standard error."""
        expected_s, variance = self._expected(step, now_s)
        # The prior's standard deviation is its mean. Rounds with other draft lengths are evidence
        # for this one too.
        num_timed = self.num_timed(step.choice.drafter, step.num_inflight, now_s)
        spread = num_timed * variance + PRIOR_ROUNDS * expected_s**2
        return expected_s, math.sqrt(spread) / (num_timed + PRIOR_ROUNDS)

    def add_prompt(self, num_prompt: int, seconds: float, now_s: float, *, has_head: bool) -> None:
        """Learn the time of a first round; `has_head`: whether a head read the prompt too."""
        self._add_reading("", num_prompt, seconds, now_s, has_head=has_head)

    def add_first_draft(self, drafter: str, num_prompt: int, seconds: float, now_s: float) -> None:
        """Learn the time of a draft engine's first draft, in which it read the prompt."""
        self._add_reading(drafter, num_prompt, seconds, now_s, has_head=False)

    def reading_s(self, drafter: str, num_prompt: int, *, is_head: bool) -> float:
        """Predict the extra seconds for this drafter to read the prompt; 0 if not known."""
        key = ("" if is_head else drafter,)
        products = self._readings.value(key)
        if products is None:
            return 0.0
        weighed = products * self._readings.weight(key, 0.0)
        # The target's own reading may cost anything; a head adds nothing until it is measured.
        found = solve(weighed, np.zeros(NUM_READING), num_loose=2, is_signed=True)
        return max(0.0, float(np.array([1.0, num_prompt]) @ (found[2:] if is_head else found[:2])))

    def state(self) -> dict[str, Any]:
        """Return what was learned as JSON values."""
        return {"steps": self._steps.state(), "readings": self._readings.state()}

    @classmethod
    def of_state(cls, state: Any, as_of_s: float) -> CostEstimates:
        """Return the estimates of a `state`: see `Means.of_state`. May also raise KeyError."""
        found = cls()
        found._steps = Means.of_state(
            state["steps"], StepKey._make, 1 + NUM_PASS + NUM_DRAFT, as_of_s
        )
        found._readings = Means.of_state(state["readings"], tuple, 1 + NUM_READING, as_of_s)
        return found

    def take(self, others: CostEstimates) -> None:
        """Take the times of others, which are newer."""
        self._steps.take(others._steps, 0.0, is_newer=True)
        self._readings.take(others._readings, 0.0, is_newer=True)
        self._lines.clear()

    def _is_known_at(self, step: Step, now_s: float) -> bool:
        """Return whether PRIOR_ROUNDS steps with this drafter were timed at this load."""
        return self.num_timed(step.choice.drafter, step.num_inflight, now_s) >= PRIOR_ROUNDS

    def _expected(self, step: Step, now_s: float) -> tuple[float, float]:
        """Return the seconds expected of a step, and the variance of timed steps with its key."""
        key = step.key
        coefficients = self._line(key.bucket).coefficients(key.drafter)
        expected_s = float(step.features @ coefficients)
        weight, variance = self._steps.weight(key, now_s), 0.0
        if weight:
            products = self._steps.value(key)
            residuals = products[:, 0] - products[:, 1:] @ coefficients
            off_s = float(residuals[1])
            mean_square = float(residuals[0] - residuals[1:] @ coefficients)
            variance = max(0.0, mean_square - off_s**2)
            expected_s += weight / (weight + PRIOR_ROUNDS) * off_s
        least_s = PART_SHARE * float(coefficients[0]) + sys.float_info.epsilon
        return float(max(expected_s, least_s)), variance

    def _learn_all(self, steps: Iterable[tuple[Step, float]], now_s: float) -> None:
        """Learn from steps and their seconds."""
        # The fastest first, so that slow ones among them count as outliers.
        for step, seconds in sorted(steps, key=lambda timed: timed[1]):
            most_s = MAX_OUTLIER * self._expected(step, now_s)[0] if self.is_known else seconds
            self._learn(step, min(seconds, most_s), now_s)

    def _learn(self, step: Step, seconds: float, now_s: float) -> None:
        values = np.concatenate([[seconds], step.features])
        self._steps.add(step.key, np.outer(values, values), now_s)
        self._num_new += 1
        if self._num_new % PRIOR_ROUNDS == 0 or self._num_new < PRIOR_ROUNDS:
            self._lines.clear()

    def _add_reading(
        self, drafter: str, num_prompt: int, seconds: float, now_s: float, *, has_head: bool
    ) -> None:
        features = ReadingFeatures(1.0, num_prompt, has_head, has_head * num_prompt)
        values = np.array([seconds, *features])
        self._readings.add((drafter,), np.outer(values, values), now_s)

    def _line(self, bucket: int) -> _Line:
        if bucket not in self._lines:
            self._lines[bucket] = self._solve(bucket)
        return self._lines[bucket]

    def _solve(self, bucket: int) -> _Line:
        """Fit one line to the steps of all loads, and with it as prior one to this load."""
        if not self._steps:
            return _Line(np.zeros(NUM_PASS + NUM_DRAFT), {})
        names = sorted({key.drafter for key, _ in self._steps.items() if key.num_tokens})
        whole, own = self._products(names, None), self._products(names, bucket)
        mean_s = whole[0, 1] / whole[1, 1]
        prior = PART_SHARE * mean_s / usual_features(whole)
        prior[0] = mean_s
        found = solve(own, solve(whole, prior, num_loose=1), num_loose=1)
        passes, drafting = found[:NUM_PASS], found[NUM_PASS:].reshape(-1, NUM_DRAFT)
        return _Line(
            np.concatenate([passes, np.zeros(NUM_DRAFT)]),
            {
                name: np.concatenate([passes, own])
                for name, own in zip(names, drafting, strict=True)
            },
        )

    def _products(self, names: list[str], bucket: int | None) -> Array:
        """Return the sums of products of all steps at a load, each drafter with own features."""
        # Summed by drafter first: adding to the large matrix is slow. The name is "" without draft
        # tokens, where no drafter has a share.
        by_drafter: dict[str, Array] = {}
        for key, mean in self._steps.items():
            if bucket is None or key.bucket == bucket:
                name = key.drafter if key.num_tokens else ""
                by_drafter[name] = by_drafter.get(name, 0.0) + mean.weight * mean.value
        size = 1 + NUM_PASS + NUM_DRAFT * len(names)
        found = np.zeros((size, size))
        for name, part in by_drafter.items():
            columns = [*range(1 + NUM_PASS)]
            if name:
                own = 1 + NUM_PASS + NUM_DRAFT * names.index(name)
                columns += range(own, own + NUM_DRAFT)
            found[np.ix_(columns, columns)] += part[: len(columns), : len(columns)]
        return found
