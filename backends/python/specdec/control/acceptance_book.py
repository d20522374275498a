"""How often guesses stand: by task, drafter and band of temperatures, forgetting what is old.

Position i of a draft is judged in a round if the i - 1 guesses before it stood; of those it is
right in a share, the conditional acceptance of that position. Sums over rounds of right ÷ judged
are its maximum-likelihood estimate under right-censoring: rounds that ran out of guesses say
nothing about positions that they did not have. With one α for all positions it is
Σ accepted / Σ min(accepted + 1, k).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from specdec.control.choices import COPY
from specdec.control.drift import Drift
from specdec.control.expectation import expected_tokens_by_length

MAX_POSITIONS = 16

MEMORY_ROUNDS = 512
"""An older round weighs less by a factor e each time so many newer ones have come."""

HALF_LIFE_S = 1800.0
"""What is known loses half its weight in so much time without news, so that it is tried again."""

POOL_WEIGHT = 8.0
"""What all tasks together say counts like so many judged guesses of the task itself."""

UNKNOWN = 0.6
"""The conditional acceptance of a drafter of which nothing is known: it is worth a trial."""

KEPT_ROUNDS = 4.0
"""What was known before a change counts like at most so many rounds behind it."""

_GROWTH = math.exp(1 / MEMORY_ROUNDS)
_RESCALE_AT = 1e100


@dataclass(frozen=True, slots=True)
class Offer:
    """What a drafter that was asked offered, and how much of it stood."""

    drafter: str
    num_drafted: int
    depth: int
    """Guesses that follow each other, at most; fewer than num_drafted in a tree."""
    num_accepted: int
    num_rounds: int = 1
    """In which it was asked; more than one only where it had nothing to offer. Of copying, tokens:
    as if nobody said more than one a round."""


@dataclass(slots=True)
class Tally:
    """Decayed counts. A newer round is written with more weight instead of fading all others."""

    weight: float = 1.0
    """Of the newest round."""
    last_s: float = 0.0
    num_asked: float = 0.0
    num_offered: float = 0.0
    num_drafted: float = 0.0
    num_accepted: float = 0.0
    judged: list[float] = field(default_factory=lambda: [0.0] * MAX_POSITIONS)
    right: list[float] = field(default_factory=lambda: [0.0] * MAX_POSITIONS)

    def add(self, offer: Offer, now_s: float) -> None:
        """What a drafter said when it was asked."""
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
        """All that is known counts like KEPT_ROUNDS at most."""
        self.weight = max(self.weight, self.num_asked / KEPT_ROUNDS)

    def age(self, now_s: float) -> float:
        """What a count is worth now, as a factor."""
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
    """An estimate for one task, drafter and band."""

    offers: float
    """Share of the rounds in which the drafter had an offer when it was asked."""
    alphas: tuple[float, ...]
    """Conditional acceptance of each position."""
    mean_drafted: float
    mean_accepted: float
    """Guesses of an offer, and how many of them stood, whatever its length."""

    def tokens_of_offer(self, depth: int) -> float:
        """Expected of a round with an offer of `depth`, the target's own token included."""
        return expected_tokens_by_length(self.alphas[:depth])[-1]

    def expected_tokens(self, depth: int) -> float:
        """Of a round in which an offer of `depth` is asked for."""
        return 1.0 + self.offers * (self.tokens_of_offer(depth) - 1.0)


class AcceptanceBook:
    """Not thread-safe: the controller's lock is held around it."""

    def __init__(self) -> None:
        self.tallies: dict[tuple[str, str, str], Tally] = {}
        """By task, drafter, band; task "" is all tasks together, band "" all bands."""
        self._drifts: dict[tuple[str, str], Drift] = defaultdict(Drift)

    def add(self, task: str, band: str, offer: Offer, now_s: float) -> None:
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
        """The posterior mean of so many positions, `optimism` standard errors above it.

        A task starts from all tasks together, these from all bands, those from UNKNOWN. Of who
        copies nothing is expected at first: it stands in nobody's way as long as it is not seen.
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
        """It has been swapped for another one, of which nothing is known."""
        self.tallies = {key: each for key, each in self.tallies.items() if key[1] != drafter}

    def num_rounds(self, task: str, drafter: str, band: str, now_s: float) -> float:
        """Rounds of the task in which it was asked, as far as they are remembered."""
        tally = self.tallies.get((task, drafter, band))
        return 0.0 if tally is None else tally.num_asked * tally.age(now_s)

    def alpha(self, task: str, drafter: str) -> tuple[float, float]:
        """α̂ over all positions and bands of a task, and how many judged guesses it rests on."""
        judged = right = 0.0
        for (name, each, band), tally in self.tallies.items():
            if (name, each) == (task, drafter) and band:
                judged += sum(tally.judged) / tally.weight
                right += sum(tally.right) / tally.weight
        return (right / judged if judged else 0.0), judged

    def mean_drafted(self, task: str, drafter: str) -> float:
        """Guesses of an offer, over all bands of a task; 0 as long as there was none."""
        drafted = offered = 0.0
        for (name, each, band), tally in self.tallies.items():
            if (name, each) == (task, drafter) and band:
                drafted += tally.num_drafted / tally.weight
                offered += tally.num_offered / tally.weight
        return drafted / offered if offered else 0.0

    def rate(self, task: str, drafter: str, num_tokens: int) -> float | None:
        """The article's α, accepted ÷ drafted, at so many guesses; None while nothing is known."""
        if not any(key[:2] == (task, drafter) for key in self.tallies):
            return None
        alpha, _ = self.alpha(task, drafter)
        return sum(alpha**place for place in range(1, num_tokens + 1)) / num_tokens

    def _watch(self, task: str, band: str, offer: Offer, now_s: float) -> None:
        """Forgets most of a drafter that has changed. Copies come in runs: that is no change."""
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
    """Mean and standard error of a share, `prior` counted as POOL_WEIGHT samples."""
    total = judged + POOL_WEIGHT
    mean = (right + POOL_WEIGHT * prior) / total
    return mean, math.sqrt(mean * (1 - mean) / (total + 1))


def _by_position(
    judged: Sequence[float], right: Sequence[float], prior: Sequence[float] | None
) -> tuple[list[float], list[float]]:
    """Means and standard errors; without a prior each position is expected to be as the last."""
    alphas: list[float] = []
    errors: list[float] = []
    shift = 0.0
    for place in range(len(judged)):
        if prior is None:
            expected = alphas[-1] if alphas else UNKNOWN
        else:  # Where a position was never reached, a task differs from the pool as before it.
            expected = min(0.99, max(0.01, prior[place] + shift))
        mean, error = _posterior(right[place], judged[place], expected)
        alphas.append(mean)
        errors.append(error)
        if prior is not None:
            shift = 0.5 * (mean - prior[place])
    return alphas, errors
