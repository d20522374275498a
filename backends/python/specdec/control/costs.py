"""What rounds cost, learned from the rounds themselves: no profile is needed beforehand.

A pass of the target takes a time of its own, more for each row in it and for its context (Liu et
al. 2024 fit the same line offline); a round of the loop also pays for the calls, and a step of a
streaming call for less of that; a draft takes a time of its own and more for each guess. Loads
differ in all of it, so that each has its own fit, which starts from the fit over all loads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MEMORY = 1 - 1 / 512
"""Weight of a sample against the next one's, in a fit."""

PRIOR_WEIGHT = 6.0
"""What is known from all loads together counts like so many samples of one load."""

MAX_OUTLIER = 4.0
"""A sample counts as at most so many times what was expected: a stall says nothing of passes."""

REFIT_EVERY = 8

ROW_SHARE = 0.03
"""Of a plain pass, for one more row, as long as nothing is known of it."""

MAX_LOAD_BUCKETS = 12

Vector = npt.NDArray[np.float64]


def load_bucket(num_inflight: int) -> int:
    """0 for one request, 1 for two, 2 for three and four, 3 for five to eight, and so on."""
    return min((max(1, num_inflight) - 1).bit_length(), MAX_LOAD_BUCKETS - 1)


class Fit:
    """Least squares with decay, drawn to a prior."""

    def __init__(self, size: int) -> None:
        self.products = np.zeros((size, size))
        self.moments = np.zeros(size)
        self.num_samples = 0
        self.weight = 0.0
        self._solved: Vector | None = None

    def add(self, features: Vector, seconds: float) -> None:
        self.products *= MEMORY
        self.moments *= MEMORY
        self.products += np.outer(features, features)
        self.moments += seconds * features
        self.num_samples += 1
        self.weight = self.weight * MEMORY + 1
        if self.num_samples % REFIT_EVERY == 0 or self.num_samples < REFIT_EVERY:
            self._solved = None

    def solve(self, prior: Vector) -> Vector:
        """Coefficients; of a fit without samples the prior."""
        if self._solved is None:
            # Ridge by feature: a column that is always 0 keeps its prior.
            scale = np.maximum(np.diag(self.products) / max(1.0, self.weight), 1e-12)
            ridge = np.diag(PRIOR_WEIGHT * scale)
            system = self.products + ridge
            self._solved = prior + np.linalg.solve(system, self.moments - self.products @ prior)
        return self._solved


@dataclass(frozen=True, slots=True)
class Sample:
    """One round as the request saw it."""

    num_inflight: int
    num_rows: int
    """Of all requests in flight, as far as they are known: what a pass has to do."""
    num_context: int
    is_streamed: bool
    """A step of a streaming call of the target alone."""
    target_s: float
    lead: str | None = None
    """Who made guesses in it, for this round or (a head) for the next."""
    num_drafted: int = 0
    """The guesses that were made."""
    draft_s: float = 0.0
    is_head: bool = False
    """The time for the guesses is in target_s."""


class CostModel:
    """Not thread-safe: the controller's lock is held around it."""

    def __init__(self) -> None:
        self.passes: dict[int, Fit] = {}
        """By load bucket, -1 for all; features: loop, stream, rows, thousands of context."""
        self.drafts: dict[tuple[str, int], Fit] = {}
        """By lead and load bucket; features: 1, guesses."""
        self.prompts: dict[str, Fit] = {}
        """Of a first round, by the head that reads along ("" for none), and of an engine's first
        draft, by its name; features: 1, thousands of prompt tokens."""

    @property
    def is_known(self) -> bool:
        """Whether a pass has been timed at all."""
        return -1 in self.passes

    @property
    def num_plain(self) -> tuple[float, float]:
        """Rounds without a lead and steps of the target alone, as far as they are remembered."""
        if not self.is_known:
            return 0.0, 0.0
        products = self.passes[-1].products
        return float(products[0, 0]), float(products[1, 1])

    def add(self, sample: Sample) -> None:
        """Learns from a round that paid for no prompt."""
        bucket = load_bucket(sample.num_inflight)
        features = _pass_features(sample.is_streamed, sample.num_rows, sample.num_context)
        target_s = sample.target_s
        if sample.lead is not None and sample.is_head:
            if not self.is_known:
                return
            pass_s = self._pass_s(bucket, features)
            usual_s = pass_s + self.draft_s(sample.lead, sample.num_inflight, sample.num_drafted)
            drafting_s = min(target_s, MAX_OUTLIER * usual_s) - pass_s
            self._add_draft(sample.lead, bucket, sample.num_drafted, drafting_s)
            return
        if self.is_known:
            target_s = min(target_s, MAX_OUTLIER * self._pass_s(bucket, features))
        for key in (bucket, -1):
            self.passes.setdefault(key, Fit(4)).add(features, target_s)
        if sample.lead is not None:
            draft_s, usual_s = (
                sample.draft_s,
                self.draft_s(sample.lead, sample.num_inflight, sample.num_drafted),
            )
            if usual_s:
                draft_s = min(draft_s, MAX_OUTLIER * usual_s)
            self._add_draft(sample.lead, bucket, sample.num_drafted, draft_s)

    def pass_line(
        self, num_inflight: int, num_context: int, *, is_streamed: bool
    ) -> tuple[float, float]:
        """Seconds of a pass without a row, and of each row of all requests together."""
        coefficients = self._coefficients(load_bucket(num_inflight))
        if coefficients is None:
            return 0.0, 0.0
        start_s = coefficients[1] if is_streamed else coefficients[0]
        return float(start_s + num_context / 1000 * coefficients[3]), float(coefficients[2])

    def draft_s(self, lead: str, num_inflight: int, num_tokens: int) -> float:
        """Seconds for so many guesses; 0 of a lead that was never timed, so that it is tried."""
        bucket = load_bucket(num_inflight)
        whole = self.drafts.get((lead, -1))
        if whole is None:
            return 0.0
        prior = whole.solve(np.zeros(2))
        own = self.drafts.get((lead, bucket))
        start_s, token_s = prior if own is None else own.solve(prior)
        return max(0.0, float(start_s + num_tokens * max(0.0, token_s)))

    def add_prompt(self, reader: str, num_prompt: int, seconds: float) -> None:
        """Learns what a prompt costs; `reader` as in `prompts`."""
        fit = self.prompts.setdefault(reader, Fit(2))
        features = np.array([1.0, num_prompt / 1000])
        if fit.num_samples >= REFIT_EVERY:
            expected = float(features @ fit.solve(np.zeros(2)))
            seconds = min(seconds, MAX_OUTLIER * max(expected, 1e-4))
        fit.add(features, seconds)

    def reading_s(self, lead: str, num_prompt: int, *, is_head: bool) -> float:
        """Seconds that a prompt costs more because the lead must read it too; 0 if not known."""
        read, plain = self.prompts.get(lead), self.prompts.get("")
        if read is None or (is_head and plain is None):
            return 0.0
        features = np.array([1.0, num_prompt / 1000])
        seconds = float(features @ read.solve(np.zeros(2)))
        if is_head and plain is not None:
            seconds -= float(features @ plain.solve(np.zeros(2)))
        return max(0.0, seconds)

    def _add_draft(self, lead: str, bucket: int, num_tokens: int, seconds: float) -> None:
        features = np.array([1.0, num_tokens])
        for key in (bucket, -1):
            self.drafts.setdefault((lead, key), Fit(2)).add(features, seconds)

    def _pass_s(self, bucket: int, features: Vector) -> float:
        coefficients = self._coefficients(bucket)
        return 0.0 if coefficients is None else max(float(features @ coefficients), 1e-6)

    def _coefficients(self, bucket: int) -> Vector | None:
        whole = self.passes.get(-1)
        if whole is None:
            return None
        num_weighed = max(float(whole.products[0, 0] + whole.products[1, 1]), 1e-12)
        mean_s = float(whole.moments[:2].sum()) / num_weighed
        prior = whole.solve(np.array([mean_s, mean_s, ROW_SHARE * mean_s, 0.0]))
        own = self.passes.get(bucket)
        coefficients = prior if own is None else own.solve(prior)
        # Neither a row nor a token of context makes a pass shorter, whatever the noise says.
        least = np.array([0.1 * mean_s, 0.1 * mean_s, 0.0, 0.0])
        return np.maximum(coefficients, least)


def _pass_features(is_streamed: bool, num_rows: float, num_context: int) -> Vector:
    return np.array([float(not is_streamed), float(is_streamed), num_rows, num_context / 1000])
