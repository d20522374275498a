"""Rates of tokens per second, and their ratio with an interval."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NUM_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Timed:
    """Tokens and the seconds in which they came, prompt processing included."""

    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of two rates over the same prompts; `low` and `high` bound 95 % of the resamples."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f}–{self.high:.2f})"


def rate(timed: Iterable[Timed]) -> float:
    """Tokens per second over all of them together."""
    known = list(timed)
    return sum(each.num_tokens for each in known) / sum(each.seconds for each in known)


def ratio(over: Mapping[str, Timed], under: Mapping[str, Timed]) -> Ratio:
    """Rate of `over` ÷ rate of `under`, by prompt id; the same prompts are drawn for both."""
    ids = sorted(over)
    order = random.Random(0)
    drawn_ratios = []
    for _ in range(NUM_RESAMPLES):
        drawn = order.choices(ids, k=len(ids))
        drawn_ratios.append(rate(over[i] for i in drawn) / rate(under[i] for i in drawn))
    drawn_ratios.sort()
    low, high = drawn_ratios[int(0.025 * NUM_RESAMPLES)], drawn_ratios[int(0.975 * NUM_RESAMPLES)]
    return Ratio(rate(over.values()) / rate(under.values()), low, high)
