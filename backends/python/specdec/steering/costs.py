"""Costs of rounds, learned from the rounds themselves: no profile is needed beforehand.

A pass of the target has a fixed cost, and costs for each row and for its context (Liu et al. 2024
fit the same line offline). A round of the loop also pays for its calls; a step of a streaming call
pays less for them. A draft has a fixed cost and a cost for each draft token. All this differs by
load, so each load has its own fit, which starts from the fit over all loads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specdec.steering.baselines import Baseline
from specdec.steering.draft_costs import DraftCosts, Guessing
from specdec.steering.fits import REFIT_EVERY, Fit, Vector

MAX_OUTLIER = 4.0
"""Most that a sample counts, as a multiple of its expected time: a stall says little of passes."""

ROW_SHARE = 0.03
"""Prior cost of a row, as a share of the pass without its rows."""

CALL_SHARE = 0.1
"""Prior cost of a round's calls over those of a streamed step, as a share of a plain step. While a
head reads along, rounds cannot be timed without it, and copies would seem to cost nothing."""

LOOP_SHARE = 0.02
"""Prior cost of each request that runs round by round, as a share of a plain step."""

MAX_LOAD_BUCKETS = 12


def load_bucket(num_inflight: int) -> int:
    """Return 0 for one request, 1 for two, 2 for three and four, 3 for five to eight, and so on."""
    return min((max(1, num_inflight) - 1).bit_length(), MAX_LOAD_BUCKETS - 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """The time of one round, and the load in which the request measured it."""

    num_inflight: int
    num_looping: int
    """Requests in flight that run round by round."""
    num_rows: int
    """Rows of a pass over all requests in flight, where they are known."""
    num_context: int
    """Tokens of this request's context."""
    is_streamed: bool
    """Whether it was a plain step of a streaming call."""
    target_s: float
    """Seconds of the round without waiting for a draft engine."""
    lead: str | None = None
    """Name of the draft engine that drafted for this round, or of the head that drafted for the
    next one; None if neither did."""
    num_drafted: int = 0
    """Draft tokens from `lead`."""
    num_drafting: int = 1
    """Requests in flight for which `lead` drafts."""
    draft_s: float = 0.0
    """Seconds spent waiting for a draft engine."""
    is_head: bool = False
    """Whether `lead` is a head; its time is then part of `target_s`."""


class CostModel:
    """Learned costs of passes, drafts and prompts. Callers hold the controller's lock."""

    def __init__(self) -> None:
        self.passes: dict[tuple[int, bool], Fit] = {}
        """Fits by load bucket, and whether for streamed plain steps; see `_pass_features`.

        Plain steps and rounds decay apart: where nearly all samples are plain steps, the few rounds
        show what calls and rows cost.
        """
        self.drafting = DraftCosts(NUM_PASS_FEATURES, self._pass_coefficients)
        self.baselines: dict[int, Baseline] = {}
        """Paces without speculation, by load bucket."""
        self.prompts = Fit(4)
        """Fit of first rounds; features: 1, thousands of prompt tokens, and both again if a head of
        any shape reads along. In one fit, the head does not pay for the target's own reading."""
        self.first_drafts: dict[str, Fit] = {}
        """Fits of first drafts by draft engine; features: 1, thousands of prompt tokens."""
        self._solved: dict[int, Vector] = {}
        """Coefficients of passes by load bucket, kept until there are enough new samples."""

    @property
    def is_known(self) -> bool:
        """Whether any pass has been timed."""
        return bool(self.passes)

    @property
    def num_looped(self) -> int:
        """Timed rounds of the loop in which no head drafted."""
        return self._num_samples(is_streamed=False)

    @property
    def num_streamed(self) -> int:
        """Timed plain steps of streaming calls."""
        return self._num_samples(is_streamed=True)

    def _num_samples(self, *, is_streamed: bool) -> int:
        own = (fit for (_, kind), fit in self.passes.items() if kind == is_streamed)
        return sum(fit.num_samples for fit in own)

    def is_timed(self, lead: str) -> bool:
        """Return whether drafts of `lead` were timed at any load."""
        return self.drafting.is_timed(lead)

    def num_timed(self, lead: str | None, num_inflight: int) -> int:
        """Return how many rounds with drafts of `lead` were timed at this load.

        For None, return the number of timed rounds in which no head drafted.
        """
        bucket = load_bucket(num_inflight)
        if lead is not None:
            return self.drafting.num_timed(lead, bucket)
        fit = self.passes.get((bucket, False))
        return fit.num_samples if fit else 0

    def solve_anew(self) -> None:
        """Drop the solved coefficients, so that the next use includes new samples."""
        self._solved.clear()
        self.drafting.solve_anew()

    def add(self, sample: Sample) -> None:
        """Learn from a round in which no prompt was read."""
        bucket = load_bucket(sample.num_inflight)
        features = _pass_features(
            sample.is_streamed, sample.num_looping, sample.num_rows, sample.num_context
        )
        target_s = sample.target_s
        if not sample.is_streamed:
            self._baseline(sample.num_inflight).add_round()
        guessing = None
        if sample.lead is not None:
            guessing = Guessing(sample.lead, bucket, sample.num_drafted, sample.num_drafting)
        if guessing is not None and sample.is_head:
            if self.is_known:
                expected_s = self._pass_s(bucket, features) + self.drafting.line_s(guessing)
                self.drafting.add(guessing, min(target_s, MAX_OUTLIER * expected_s), features)
            return
        if self.is_known:
            target_s = min(target_s, MAX_OUTLIER * self._pass_s(bucket, features))
        if sample.is_streamed:
            self._baseline(sample.num_inflight).add_step(
                target_s,
                sample.num_context,
                sample.num_inflight,
                is_alone=not sample.num_looping,
            )
        fit = self.passes.setdefault((bucket, sample.is_streamed), Fit(NUM_PASS_FEATURES))
        fit.add(features, target_s)
        if fit.is_due:
            self.solve_anew()
        if guessing is not None:
            line_s = self.drafting.line_s(guessing)
            limit_s = MAX_OUTLIER * line_s if line_s > 0 else sample.draft_s
            self.drafting.add(guessing, min(sample.draft_s, limit_s), None)

    def pass_line(
        self, num_inflight: int, num_context: int, *, is_streamed: bool
    ) -> tuple[float, float]:
        """Return seconds of a pass without rows, and of each row.

        All requests in flight are assumed to stream, or all to run round by round.
        """
        coefficients = self._pass_coefficients(load_bucket(num_inflight))
        num_looping = 0 if is_streamed else num_inflight
        features = _pass_features(is_streamed, num_looping, 0.0, num_context)
        return float(features @ coefficients), float(coefficients[ROWS])

    def plain_s(self, num_inflight: int, num_context: int) -> float:
        """Predict seconds of a plain step while no request in flight speculates."""
        start_s, row_s = self.pass_line(num_inflight, num_context, is_streamed=True)
        fitted_s, measured = start_s + row_s * num_inflight, self._baseline(num_inflight)
        # The measured mean is of another context length and load; the fit corrects for both.
        usual_s, _ = self.pass_line(num_inflight, round(measured.mean_context), is_streamed=True)
        usual_s += row_s * measured.mean_inflight
        measured_s = measured.steps.mean_s + fitted_s - usual_s
        return measured.trust * measured_s + (1 - measured.trust) * fitted_s

    def has_baseline(self, num_inflight: int) -> bool:
        """Return whether the pace without speculation is known at this load."""
        return self._baseline(num_inflight).is_known

    def _baseline(self, num_inflight: int) -> Baseline:
        return self.baselines.setdefault(load_bucket(num_inflight), Baseline())

    def draft_s(self, lead: str, num_inflight: int, num_tokens: int) -> float:
        """Predict seconds that a draft adds to a round, if all in flight use this drafter.

        Return 0 for a drafter that was never timed, so that it is tried. If no round without the
        head was timed, only the sum of both is known, and the head's part may come out negative.
        It is limited so that no round is shorter than a plain step.
        """
        bucket = load_bucket(num_inflight)
        found = self.drafting.seconds(Guessing(lead, bucket, num_tokens, num_inflight))
        _, call_s, loop_s, _, _ = self._pass_coefficients(bucket)
        return max(-float(call_s + loop_s * num_inflight), found)

    def add_prompt(self, num_prompt: int, seconds: float, *, has_head: bool) -> None:
        """Learn the time of a first round; `has_head`: whether a head read the prompt too."""
        _add_reading(self.prompts, _reading_features(num_prompt, has_head=has_head), seconds)

    def add_first_draft(self, lead: str, num_prompt: int, seconds: float) -> None:
        """Learn the time of a draft engine's first draft, in which it read the prompt."""
        fit = self.first_drafts.setdefault(lead, Fit(2))
        _add_reading(fit, np.array([1.0, num_prompt / 1000]), seconds)

    def reading_s(self, lead: str, num_prompt: int, *, is_head: bool) -> float:
        """Predict the extra seconds for this drafter to read the prompt; 0 if not known."""
        features = np.array([1.0, num_prompt / 1000])
        fit = self.prompts if is_head else self.first_drafts.get(lead)
        if fit is None or not fit.num_samples:
            return 0.0
        coefficients = _reading_coefficients(fit)
        return max(0.0, float(features @ coefficients[-2:]))

    def _pass_s(self, bucket: int, features: Vector) -> float:
        return max(float(features @ self._pass_coefficients(bucket)), 1e-6)

    def _pass_coefficients(self, bucket: int) -> Vector:
        """Return the coefficients of a pass; all are 0 until a pass has been timed."""
        if bucket not in self._solved:
            self._solved[bucket] = self._solve(bucket)
        return self._solved[bucket]

    def _solve(self, bucket: int) -> Vector:
        if not self.passes:
            return np.zeros(NUM_PASS_FEATURES)
        whole = Fit.total([*self.passes.values()])
        num_weighed = max(float(whole.products[0, 0]), 1e-12)
        mean_s, mean_rows = whole.moments[0] / num_weighed, whole.products[0, ROWS] / num_weighed
        row_s = ROW_SHARE * mean_s / (1 + ROW_SHARE * mean_rows)
        call_s, loop_s = CALL_SHARE * mean_s, LOOP_SHARE * mean_s
        # More work never makes a pass shorter: a negative coefficient is noise.
        expected = np.array([mean_s, call_s, loop_s, row_s, 0.0])
        coefficients = whole.solve(expected, OF_PASSES, num_loose=1)
        own = [fit for (load, _), fit in self.passes.items() if load == bucket]
        if own:
            coefficients = Fit.total(own).solve(coefficients, OF_PASSES, num_loose=1)
        return np.maximum(coefficients, np.array([0.1 * mean_s, 0.0, 0.0, 0.0, 0.0]))


NUM_PASS_FEATURES, ROWS = 5, 3
"""Number of features of a pass, and the index of the rows among them."""

OF_PASSES = np.ones(NUM_PASS_FEATURES, dtype=bool)
"""Mask of the features whose coefficients cannot be negative: all of them."""


def _reading_features(num_prompt: int, *, has_head: bool) -> Vector:
    own = np.array([1.0, num_prompt / 1000])
    return np.concatenate([own, has_head * own])


def _reading_coefficients(fit: Fit) -> Vector:
    """Solve for the cost of reading, with priors of 0.

    The prior is loose for the target's cost, and tight for what a head or draft engine adds.
    """
    size = len(fit.moments)
    return fit.solve(np.zeros(size), np.zeros(size, dtype=bool), num_loose=size - 2)


def _add_reading(fit: Fit, features: Vector, seconds: float) -> None:
    if fit.num_samples >= REFIT_EVERY:
        expected = float(features @ _reading_coefficients(fit))
        seconds = min(seconds, MAX_OUTLIER * max(expected, 1e-4))
    fit.add(features, seconds)


def _pass_features(
    is_streamed: bool, num_looping: int, num_rows: float, num_context: int
) -> Vector:
    """Return 1, 1 for a round of the loop else 0, looping requests, rows, thousands of context."""
    return np.array([1.0, float(not is_streamed), num_looping, num_rows, num_context / 1000])
