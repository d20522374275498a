"""What rounds cost, learned from the rounds themselves: no profile is needed beforehand.

A pass of the target takes a time of its own, more for each row in it and for its context (Liu et
al. 2024 fit the same line offline); a round of the loop also pays for the calls, and a step of a
streaming call for less of that; a draft takes a time of its own and more for each guess. Loads
differ in all of it, so that each has its own fit, which starts from the fit over all loads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specdec.control.baselines import Baseline
from specdec.control.draft_costs import DraftCosts, Guessing
from specdec.control.fits import REFIT_EVERY, Fit, Vector

MAX_OUTLIER = 4.0
"""A sample counts as at most so many times what was expected: a stall says nothing of passes."""

ROW_SHARE = 0.03
"""Of what a pass takes without its rows, for each of them, as long as nothing is known of it."""

CALL_SHARE = 0.1
"""Of a plain pass, for a round of the loop beside a step of a streaming call, as long as nothing is
known of it. Beside a head that reads along no round is timed without it: copying alone would look
as if it cost nothing."""

LOOP_SHARE = 0.02
"""Of a plain pass, for each request that runs round by round, as long as nothing is known of it."""

MAX_LOAD_BUCKETS = 12


def load_bucket(num_inflight: int) -> int:
    """0 for one request, 1 for two, 2 for three and four, 3 for five to eight, and so on."""
    return min((max(1, num_inflight) - 1).bit_length(), MAX_LOAD_BUCKETS - 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """One round as the request saw it."""

    num_inflight: int
    num_looping: int
    """Of them, requests that run round by round."""
    num_rows: int
    """Of all requests in flight, as far as they are known: what a pass has to do."""
    num_context: int
    is_streamed: bool
    """A step of the target alone."""
    target_s: float
    lead: str | None = None
    """Who made guesses in it, for this round or (a head) for the next."""
    num_drafted: int = 0
    """The guesses that were made."""
    num_drafting: int = 1
    """Requests for which the lead drafts at the moment."""
    draft_s: float = 0.0
    is_head: bool = False
    """The time for the guesses is in target_s."""


class CostModel:
    """Not thread-safe: the controller's lock is held around it."""

    def __init__(self) -> None:
        self.passes: dict[tuple[int, bool], Fit] = {}
        """By load bucket, and whether of steps of the target alone; features as in _pass_features.

        Each is forgotten by its own like: where steps of the target alone are nearly all there is,
        the few rounds among them are what tells of calls and rows.
        """
        self.drafting = DraftCosts(NUM_PASS_FEATURES, self._pass_coefficients)
        self.baselines: dict[int, Baseline] = {}
        """By load bucket."""
        self.prompts = Fit(4)
        """Of a first round; features: 1, thousands of prompt tokens, and both again where a head
        reads along, in whatever shape. One fit, so that a head is not blamed for what prompts cost
        without it."""
        self.first_drafts: dict[str, Fit] = {}
        """Of a draft engine's first, by its name; features: 1, thousands of prompt tokens."""
        self._solved: dict[int, Vector] = {}
        """Of the passes, by load bucket, until there is enough that is new."""

    @property
    def is_known(self) -> bool:
        """Whether a pass has been timed at all."""
        return bool(self.passes)

    @property
    def num_looped(self) -> int:
        """Rounds that told of a pass, without a head."""
        return self._num_samples(is_streamed=False)

    @property
    def num_streamed(self) -> int:
        """Steps of the target alone that told of a pass."""
        return self._num_samples(is_streamed=True)

    def _num_samples(self, *, is_streamed: bool) -> int:
        own = (fit for (_, kind), fit in self.passes.items() if kind == is_streamed)
        return sum(fit.num_samples for fit in own)

    def is_timed(self, lead: str) -> bool:
        """Whether it is known what its guesses cost, at some load."""
        return self.drafting.is_timed(lead)

    def num_timed(self, lead: str | None, num_inflight: int) -> int:
        """Rounds with its guesses that were timed at this load; None: without guesses of a lead."""
        bucket = load_bucket(num_inflight)
        if lead is not None:
            return self.drafting.num_timed(lead, bucket)
        fit = self.passes.get((bucket, False))
        return fit.num_samples if fit else 0

    def solve_anew(self) -> None:
        """When it is asked for next: there is something new."""
        self._solved.clear()
        self.drafting.solve_anew()

    def add(self, sample: Sample) -> None:
        """Learns from a round that paid for no prompt."""
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
        """Seconds of a pass without a row, and of each row, as if all in flight did the same."""
        coefficients = self._pass_coefficients(load_bucket(num_inflight))
        num_looping = 0 if is_streamed else num_inflight
        features = _pass_features(is_streamed, num_looping, 0.0, num_context)
        return float(features @ coefficients), float(coefficients[ROWS])

    def plain_s(self, num_inflight: int, num_context: int) -> float:
        """Seconds of a step of the target alone, with nobody in flight speculating."""
        start_s, row_s = self.pass_line(num_inflight, num_context, is_streamed=True)
        fitted_s, measured = start_s + row_s * num_inflight, self._baseline(num_inflight)
        # A step behind a long text is longer, as a round is, and one beside few others is shorter:
        # a round must not be compared with a mean.
        usual_s, _ = self.pass_line(num_inflight, round(measured.mean_context), is_streamed=True)
        usual_s += row_s * measured.mean_inflight
        measured_s = measured.steps.mean_s + fitted_s - usual_s
        return measured.trust * measured_s + (1 - measured.trust) * fitted_s

    def has_baseline(self, num_inflight: int) -> bool:
        """Whether the pace without speculation is known at this load."""
        return self._baseline(num_inflight).is_known

    def _baseline(self, num_inflight: int) -> Baseline:
        return self.baselines.setdefault(load_bucket(num_inflight), Baseline())

    def draft_s(self, lead: str, num_inflight: int, num_tokens: int) -> float:
        """Seconds that so many guesses add to a round, as if all in flight asked the lead.

        0 of a lead that was never timed, so that it is tried. What a round without guesses takes
        may never have been seen beside a head: only the sum of both is known then, and what the
        head adds may come out negative; but no round is shorter than a step of the target alone.
        """
        bucket = load_bucket(num_inflight)
        found = self.drafting.seconds(Guessing(lead, bucket, num_tokens, num_inflight))
        _, call_s, loop_s, _, _ = self._pass_coefficients(bucket)
        return max(-float(call_s + loop_s * num_inflight), found)

    def add_prompt(self, num_prompt: int, seconds: float, *, has_head: bool) -> None:
        """Learns what a first round took; `has_head`: a head read the prompt along."""
        _add_reading(self.prompts, _reading_features(num_prompt, has_head=has_head), seconds)

    def add_first_draft(self, lead: str, num_prompt: int, seconds: float) -> None:
        """Learns what an engine took for its first draft."""
        fit = self.first_drafts.setdefault(lead, Fit(2))
        _add_reading(fit, np.array([1.0, num_prompt / 1000]), seconds)

    def reading_s(self, lead: str, num_prompt: int, *, is_head: bool) -> float:
        """Seconds that a prompt costs more because the lead must read it too; 0 if not known."""
        features = np.array([1.0, num_prompt / 1000])
        fit = self.prompts if is_head else self.first_drafts.get(lead)
        if fit is None or not fit.num_samples:
            return 0.0
        coefficients = _reading_coefficients(fit)
        return max(0.0, float(features @ coefficients[-2:]))

    def _pass_s(self, bucket: int, features: Vector) -> float:
        return max(float(features @ self._pass_coefficients(bucket)), 1e-6)

    def _pass_coefficients(self, bucket: int) -> Vector:
        """Nothing takes time as long as no pass was timed."""
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
        # Nothing more makes a pass shorter, whatever the noise says.
        expected = np.array([mean_s, call_s, loop_s, row_s, 0.0])
        coefficients = whole.solve(expected, OF_PASSES, num_loose=1)
        own = [fit for (load, _), fit in self.passes.items() if load == bucket]
        if own:
            coefficients = Fit.total(own).solve(coefficients, OF_PASSES, num_loose=1)
        return np.maximum(coefficients, np.array([0.1 * mean_s, 0.0, 0.0, 0.0, 0.0]))


NUM_PASS_FEATURES, ROWS = 5, 3
"""Features of a pass, and the place of the rows among them."""

OF_PASSES = np.ones(NUM_PASS_FEATURES, dtype=bool)
"""Which of them can only add to the time."""


def _reading_features(num_prompt: int, *, has_head: bool) -> Vector:
    own = np.array([1.0, num_prompt / 1000])
    return np.concatenate([own, has_head * own])


def _reading_coefficients(fit: Fit) -> Vector:
    """What all prompts cost gives way to what is seen; what a head adds has to be shown."""
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
    """1, a round of the loop, requests in such rounds, rows of all, thousands of context."""
    return np.array([1.0, float(not is_streamed), num_looping, num_rows, num_context / 1000])
