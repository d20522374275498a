"""Acceptance estimates by task, drafter and band.

A band is a range of temperatures with one verification mode. Position i of a draft is compared
with the target if the i - 1 draft tokens before it were accepted. The share accepted then is the
conditional acceptance of that position. Accepted ÷ compared, summed over rounds, is its
maximum-likelihood estimate under right-censoring: shorter drafts say nothing about later positions.
With one α for all positions it is Σ accepted / Σ min(accepted + 1, k).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from specdec.estimates.formulas import acceptance_rate, expected_tokens_by_length
from specdec.steering.choices import EstimatedDrafter
from specdec.steering.drift import Drift
from specdec.steering.estimates import PRIOR_ROUNDS, Mean, Means

UNKNOWN = 1 / 2
"""Conditional acceptance assumed for an unknown drafter."""

PROPOSES, DRAFTED, ACCEPTED = "proposes", "drafted", "accepted"
"""Quantities of a drafter besides the acceptance of each position: the share of rounds in which it
had a proposal, and mean draft tokens and accepted ones of a proposal."""


@dataclass(frozen=True, slots=True)
class DraftResult:
    """The result of asking one drafter for a draft: its length, and how much was accepted."""

    drafter: EstimatedDrafter
    num_draft_tokens: int
    depth: int
    """Longest sequence of draft tokens; shorter than `num_draft_tokens` in a tree."""
    num_accepted: int
    num_rounds: int = 1
    """Rounds in which the drafter was asked; more than one only if it had no proposal. For copy
    drafters each token without a copy counts as a round."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The acceptance estimate for one task, drafter and band."""

    proposes: float
    """Share of the rounds in which the drafter had a proposal when it was asked."""
    alphas: tuple[float, ...]
    """Conditional acceptance of each position."""
    errors: tuple[float, ...]
    """Standard error of each of them."""
    mean_drafted: float
    mean_accepted: float
    """Mean draft tokens of a proposal, and mean accepted ones, over proposals of any length."""

    def expected_tokens(self, depth: int, num_errors: int = 0) -> float:
        """Return the expected tokens of a round that asks for `depth`, with a proposal or not.

        `num_errors`: standard errors that are added to the estimate of each position.
        """
        pairs = zip(self.alphas[:depth], self.errors[:depth], strict=True)
        alphas = [min(1.0, alpha + num_errors * error) for alpha, error in pairs]
        return 1.0 + self.proposes * (expected_tokens_by_length(alphas)[-1] - 1.0)


class AcceptanceKey(NamedTuple):
    """The key of a mean."""

    task: str
    """Label of the task; "" for all tasks together."""
    drafter: str
    beyond: int
    """Draft tokens that a copy exceeds; 0 for all drafts."""
    band: str
    """Label of the band; "" for all bands together."""
    quantity: str | int = ""
    """A position of a draft, or one of the quantities named above."""

    def with_quantity(self, quantity: str | int) -> AcceptanceKey:
        task, drafter, beyond, band, _ = self
        return AcceptanceKey(task, drafter, beyond, band, quantity)


class AcceptanceEstimates:
    """All acceptance estimates. Callers hold the controller's lock."""

    def __init__(self) -> None:
        self._means: Means[AcceptanceKey] = Means()
        self._drifts: dict[tuple[EstimatedDrafter, str], Drift] = defaultdict(Drift)

    def __bool__(self) -> bool:
        """Return whether anything is known."""
        return bool(self._means)

    def add(self, task: str, band: str, result: DraftResult, now_s: float) -> None:
        """Add the result of asking a drafter."""
        self._test_for_drift(task, band, result, now_s)
        for level in _levels(task, result.drafter, band):
            has_draft = float(result.depth > 0)
            self._means.add(level.with_quantity(PROPOSES), has_draft, now_s, result.num_rounds)
            if has_draft:
                self._means.add(level.with_quantity(DRAFTED), float(result.num_draft_tokens), now_s)
                self._means.add(level.with_quantity(ACCEPTED), float(result.num_accepted), now_s)
            for position in range(min(result.num_accepted + 1, result.depth)):
                is_accepted = float(position < result.num_accepted)
                self._means.add(level.with_quantity(position), is_accepted, now_s)

    def estimate(
        self, task: str, drafter: EstimatedDrafter, band: str, now_s: float, num_positions: int
    ) -> Acceptance:
        """Return the estimate, shrunk towards that of all tasks, and this towards all bands.

        Copy drafters are expected to have no proposals at first, so that they hinder no other
        drafter until copies are seen.
        """
        levels = _levels(task, drafter, band)

        def shrunk(quantity: str, prior: float) -> float:
            keys = [each.with_quantity(quantity) for each in levels]
            return self._means.shrunk(keys, prior, now_s)[0]

        alphas, errors = self._by_position(levels, now_s, num_positions)
        return Acceptance(
            proposes=shrunk(PROPOSES, float(not drafter.is_copy)),
            alphas=tuple(alphas),
            errors=tuple(errors),
            mean_drafted=shrunk(DRAFTED, 0.0),
            mean_accepted=shrunk(ACCEPTED, 0.0),
        )

    def forget(self, name: str) -> None:
        """Drop all that is known of a drafter that was replaced."""
        self._means.forget(lambda key: key.drafter == name)
        for drafter, band in [key for key in self._drifts if key[0].name == name]:
            del self._drifts[drafter, band]

    def names(self) -> set[str]:
        """Return the names of the drafters about which anything is known."""
        return {key.drafter for key, _ in self._means.items()}

    def num_rounds(self, task: str, drafter: EstimatedDrafter, band: str, now_s: float) -> float:
        """Return the decayed number of the task's rounds in which the drafter was asked."""
        return self._means.weight(_levels(task, drafter, band)[-1].with_quantity(PROPOSES), now_s)

    def alpha(self, task: str, drafter: EstimatedDrafter) -> tuple[float, float]:
        """Return α̂ over all positions and bands of a task, and its decayed number of samples."""
        own = [mean for quantity, mean in self._own(task, drafter) if isinstance(quantity, int)]
        return _pooled(own)

    def mean_drafted(self, task: str, drafter: EstimatedDrafter) -> float:
        """Return the mean draft tokens of a proposal over all bands of a task; 0 without any."""
        own = [mean for quantity, mean in self._own(task, drafter) if quantity == DRAFTED]
        return _pooled(own)[0]

    def rate(self, task: str, drafter: EstimatedDrafter, num_tokens: int) -> float | None:
        """Return accepted ÷ drafted to expect at k = `num_tokens`; None while nothing is known.

        The guide "Speculative Decoding for LLM Acceleration" calls this figure α.
        """
        alpha, num_compared = self.alpha(task, drafter)
        return acceptance_rate(alpha, num_tokens) if num_compared else None

    def state(self) -> list[Any]:
        """Return what was learned as JSON values."""
        return self._means.state()

    @classmethod
    def of_state(cls, state: Any, as_of_s: float | None = None) -> AcceptanceEstimates:
        """Return the estimates of a `state`: see `Means.of_state`."""
        found = cls()
        found._means = Means.of_state(state, AcceptanceKey._make, as_of_s=as_of_s)
        return found

    def take(self, others: AcceptanceEstimates, now_s: float) -> None:
        """Take each mean of `others` that is from at least as many rounds as the one here."""
        self._means.take(others._means, now_s, is_newer=False)

    def _own(self, task: str, drafter: EstimatedDrafter) -> Iterator[tuple[str | int, Mean]]:
        """Yield the quantity and mean of each key of a task and drafter, for each single band."""
        for key, mean in self._means.items():
            own = key.task, key.drafter, key.beyond
            if own == (task, drafter.name, drafter.beyond) and key.band:
                yield key.quantity, mean

    def _by_position(
        self, levels: list[AcceptanceKey], now_s: float, num_positions: int
    ) -> tuple[list[float], list[float]]:
        """Return means and standard errors by position.

        An unknown position is expected to equal the one before it.
        """
        alphas: list[float] = []
        errors: list[float] = []
        for position in range(num_positions):
            keys = [level.with_quantity(position) for level in levels]
            prior = alphas[-1] if alphas else UNKNOWN
            mean, weight = self._means.shrunk(keys, prior, now_s)
            alphas.append(mean)
            errors.append(math.sqrt(mean * (1 - mean) / (weight + PRIOR_ROUNDS)))
        return alphas, errors

    def _test_for_drift(self, task: str, band: str, result: DraftResult, now_s: float) -> None:
        """Add a result to the drift test; if the drafter has changed, drop most of the evidence.

        Copy drafters are not tested: copies come in runs, which would look like changes.
        """
        if not result.depth or result.drafter.is_copy:
            return
        expected = self._by_position(_levels(task, result.drafter, band), now_s, 1)[0][0]
        if self._drifts[result.drafter, band].add(float(result.num_accepted > 0) - expected):
            name = result.drafter.name
            self._means.limit(lambda key: key.drafter == name and key.band in ("", band))


def _levels(task: str, drafter: EstimatedDrafter, band: str) -> list[AcceptanceKey]:
    """Return the keys of a drafter's means without the quantity, from general to special."""
    levels = ("", ""), ("", band), (task, band)
    return [AcceptanceKey(each, drafter.name, drafter.beyond, own) for each, own in levels]


def _pooled(means: Sequence[Mean]) -> tuple[float, float]:
    """Return the mean over several means, 0 without any, and its weight."""
    weight = sum(mean.weight for mean in means)
    return (sum(mean.weight * mean.value for mean in means) / weight if weight else 0.0), weight


def drafters_of(results: Iterable[DraftResult]) -> set[str]:
    """Return the names of the drafters that were asked, without the copy drafters."""
    return {each.drafter.name for each in results if not each.drafter.is_copy}
