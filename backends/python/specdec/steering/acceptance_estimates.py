"""Acceptance estimates by task, drafter and band, in which old rounds count less.

A band is a range of temperatures with one verification mode. Position i of a draft is compared
with the target if the i - 1 draft tokens before it were accepted. The share accepted then is the
conditional acceptance of that position. Accepted ÷ compared, summed over rounds, is its
maximum-likelihood estimate under right-censoring: shorter drafts say nothing about later positions.
With one α for all positions it is Σ accepted / Σ min(accepted + 1, k).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from specdec.estimates.formulas import expected_tokens_by_length
from specdec.steering.choices import COPY
from specdec.steering.drift import Drift

MAX_POSITIONS = 16

MEMORY_ROUNDS = 512
"""Exponential decay of old evidence: after 512 newer rounds a round weighs 1/e."""

HALF_LIFE_S = 1800.0
"""Seconds without new rounds in which an estimate loses half its weight, so that the choice is
explored again."""

POOL_WEIGHT = 8.0
"""Weight of a prior, such as that from all tasks together, in samples of the task itself."""

UNKNOWN = 0.6
"""Conditional acceptance assumed for an unknown drafter: high enough for a trial."""

KEPT_ROUNDS = 4.0
"""Most weight, in rounds, of evidence from before a drafter changed."""

_GROWTH = math.exp(1 / MEMORY_ROUNDS)
_RESCALE_AT = 1e100


@dataclass(frozen=True, slots=True)
class DraftResult:
    """The result of asking one drafter for a draft: its length, and how much was accepted."""

    drafter: str
    num_drafted: int
    depth: int
    """Longest sequence of draft tokens; shorter than `num_drafted` in a tree."""
    num_accepted: int
    num_rounds: int = 1
    """Rounds in which the drafter was asked; more than one only if it had no proposal. For copy
    drafters each token without a copy counts as a round."""


@dataclass(slots=True)
class Tally:
    """Decayed counts. Newer rounds are added with more weight, instead of scaling older ones."""

    weight: float = 1.0
    """Weight of the newest round."""
    last_s: float = 0.0
    num_asked: float = 0.0
    num_offered: float = 0.0
    num_drafted: float = 0.0
    num_accepted: float = 0.0
    judged: list[float] = field(default_factory=lambda: [0.0] * MAX_POSITIONS)
    """Draft tokens compared with the target, by position."""
    right: list[float] = field(default_factory=lambda: [0.0] * MAX_POSITIONS)
    """Draft tokens accepted, by position."""

    def add(self, offer: DraftResult, now_s: float) -> None:
        """Add the result of asking a drafter."""
        idle_s, depth = max(0.0, now_s - self.last_s), offer.depth
        self.weight *= 2 ** min(64.0, idle_s / HALF_LIFE_S)
        self.last_s = now_s
        for _ in range(offer.num_rounds):
            self.weight *= _GROWTH
            self.num_asked += self.weight
        if depth:
            self.num_offered += self.weight
            self.num_drafted += self.weight * offer.num_drafted
            self.num_accepted += self.weight * offer.num_accepted
        for place in range(min(offer.num_accepted + 1, depth, MAX_POSITIONS)):
            self.judged[place] += self.weight
            if place < offer.num_accepted:
                self.right[place] += self.weight
        if self.weight > _RESCALE_AT:
            self._rescale()

    def fade(self) -> None:
        """Reduce the weight of all counts to KEPT_ROUNDS rounds at most."""
        self.weight = max(self.weight, self.num_asked / KEPT_ROUNDS)

    def age(self, now_s: float) -> float:
        """Return the factor that converts a count into rounds at their present weight."""
        idle_s = max(0.0, now_s - self.last_s)
        return 2 ** (-idle_s / HALF_LIFE_S) / self.weight

    def _rescale(self) -> None:
        factor = 1 / self.weight
        self.num_asked *= factor
        self.num_offered *= factor
        self.num_drafted *= factor
        self.num_accepted *= factor
        self.judged = [each * factor for each in self.judged]
        self.right = [each * factor for each in self.right]
        self.weight = 1.0


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The acceptance estimate for one task, drafter and band."""

    offers: float
    """Share of the rounds in which the drafter had a proposal when it was asked."""
    alphas: tuple[float, ...]
    """Conditional acceptance of each position."""
    mean_drafted: float
    mean_accepted: float
    """Mean draft tokens of a proposal, and mean accepted ones, over proposals of any length."""

    def tokens_of_offer(self, depth: int) -> float:
        """Return the expected tokens of a round with a draft of `depth`, the target's included."""
        return expected_tokens_by_length(self.alphas[:depth])[-1]

    def expected_tokens(self, depth: int) -> float:
        """Return the expected tokens of a round that asks for `depth`, with a proposal or not."""
        return 1.0 + self.offers * (self.tokens_of_offer(depth) - 1.0)


class AcceptanceEstimates:
    """All acceptance estimates. Callers hold the controller's lock."""

    def __init__(self) -> None:
        self.tallies: dict[tuple[str, str, str], Tally] = {}
        """Counts by task, drafter and band; task "" is all tasks together, band "" all bands."""
        self._drifts: dict[tuple[str, str], Drift] = defaultdict(Drift)

    def add(self, task: str, band: str, offer: DraftResult, now_s: float) -> None:
        self._watch(task, band, offer, now_s)
        for key in (
            (task, offer.drafter, band),
            ("", offer.drafter, band),
            ("", offer.drafter, ""),
        ):
            self._tally(key).add(offer, now_s)

    def estimate(
        self,
        task: str,
        drafter: str,
        band: str,
        now_s: float,
        num_positions: int = MAX_POSITIONS,
        optimism: float = 0.0,
    ) -> Acceptance:
        """Return posterior means by position, raised by `optimism` standard errors.

        The prior of a task is the estimate for all tasks together, whose prior is the estimate for
        all bands, whose prior is UNKNOWN. Copy drafters are expected to have no proposals at first,
        so that they hinder no other drafter until copies are seen.
        """
        levels = [
            self.tallies[key]
            for key in (("", drafter, ""), ("", drafter, band), (task, drafter, band))
            if key in self.tallies
        ]
        offers, errors = float(not drafter.startswith(COPY)), [0.0] * num_positions
        alphas: Sequence[float] | None = None
        mean_drafted = mean_accepted = 0.0
        for tally in levels:
            age = tally.age(now_s)
            num_offered = tally.num_offered * age
            offers = _posterior(num_offered, tally.num_asked * age, offers)[0]
            weight = num_offered + POOL_WEIGHT
            mean_drafted = (tally.num_drafted * age + POOL_WEIGHT * mean_drafted) / weight
            mean_accepted = (tally.num_accepted * age + POOL_WEIGHT * mean_accepted) / weight
            judged = [each * age for each in tally.judged[:num_positions]]
            right = [each * age for each in tally.right[:num_positions]]
            alphas, errors = _by_position(judged, right, alphas)
        if alphas is None:
            alphas, errors = _by_position([0.0] * num_positions, [0.0] * num_positions, None)
        if optimism:
            alphas = [
                min(0.99, alpha + optimism * error)
                for alpha, error in zip(alphas, errors, strict=True)
            ]
        return Acceptance(offers, tuple(alphas), mean_drafted, mean_accepted)

    def forget(self, drafter: str) -> None:
        """Drop the counts of a drafter that was replaced."""
        self.tallies = {key: each for key, each in self.tallies.items() if key[1] != drafter}

    def num_rounds(self, task: str, drafter: str, band: str, now_s: float) -> float:
        """Return the decayed number of the task's rounds in which the drafter was asked."""
        tally = self.tallies.get((task, drafter, band))
        return 0.0 if tally is None else tally.num_asked * tally.age(now_s)

    def alpha(self, task: str, drafter: str) -> tuple[float, float]:
        """Return α̂ over all positions and bands of a task, and its decayed number of samples."""
        judged = right = 0.0
        for (name, each, band), tally in self.tallies.items():
            if (name, each) == (task, drafter) and band:
                judged += sum(tally.judged) / tally.weight
                right += sum(tally.right) / tally.weight
        return (right / judged if judged else 0.0), judged

    def mean_drafted(self, task: str, drafter: str) -> float:
        """Return the mean draft tokens of a proposal over all bands of a task; 0 without any."""
        drafted = offered = 0.0
        for (name, each, band), tally in self.tallies.items():
            if (name, each) == (task, drafter) and band:
                drafted += tally.num_drafted / tally.weight
                offered += tally.num_offered / tally.weight
        return drafted / offered if offered else 0.0

    def rate(self, task: str, drafter: str, num_tokens: int) -> float | None:
        """Return accepted ÷ drafted to expect at k = `num_tokens`; None while nothing is known.

        The guide "Speculative Decoding for LLM Acceleration" calls this figure α.
        """
        if not any(key[:2] == (task, drafter) for key in self.tallies):
            return None
        alpha, _ = self.alpha(task, drafter)
        return sum(alpha**place for place in range(1, num_tokens + 1)) / num_tokens

    def _watch(self, task: str, band: str, offer: DraftResult, now_s: float) -> None:
        """Drop most of the evidence on a drafter that has changed.

        Copy drafters are not tested: copies come in runs, which would look like changes.
        """
        if not offer.depth or offer.drafter.startswith(COPY):
            return
        expected = self.estimate(task, offer.drafter, band, now_s, 1).alphas[0]
        surprise = float(offer.num_accepted > 0) - expected
        if self._drifts[offer.drafter, band].has_changed(surprise):
            for (_, drafter, each), tally in self.tallies.items():
                if drafter == offer.drafter and each in ("", band):
                    tally.fade()

    def _tally(self, key: tuple[str, str, str]) -> Tally:
        if key not in self.tallies:
            self.tallies[key] = Tally()
        return self.tallies[key]


def _posterior(right: float, judged: float, prior: float) -> tuple[float, float]:
    """Return mean and standard error of a share, with `prior` counted as POOL_WEIGHT samples."""
    total = judged + POOL_WEIGHT
    mean = (right + POOL_WEIGHT * prior) / total
    return mean, math.sqrt(mean * (1 - mean) / (total + 1))


def _by_position(
    judged: Sequence[float], right: Sequence[float], prior: Sequence[float] | None
) -> tuple[list[float], list[float]]:
    """Return means and standard errors by position.

    Without a prior, each position is expected to equal the one before it.
    """
    alphas: list[float] = []
    errors: list[float] = []
    shift = 0.0
    for place in range(len(judged)):
        if prior is None:
            expected = alphas[-1] if alphas else UNKNOWN
        else:  # A position never reached differs from its prior half as much as the one before it.
            expected = min(0.99, max(0.01, prior[place] + shift))
        mean, error = _posterior(right[place], judged[place], expected)
        alphas.append(mean)
        errors.append(error)
        if prior is not None:
            shift = 0.5 * (mean - prior[place])
    return alphas, errors
