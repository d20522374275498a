"""Rates of tokens per second, and their ratio with an interval."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

NUM_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Timed:
    """Tokens and the seconds in which they came, prompt processing included."""

    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of sums over the same prompts; `low` and `high` bound 95 % of the resamples."""

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
    return resampled(
        sorted(over),
        lambda drawn: rate(over[i] for i in drawn) / rate(under[i] for i in drawn),
    )


def resampled(ids: Sequence[str], value: Callable[[Sequence[str]], float]) -> Ratio:
    """What `value` says of these prompts, and of as many drawn from them again and again.

    Whole prompts are drawn, since what happens within an answer hangs together.
    """
    order = random.Random(0)
    drawn = sorted(value(order.choices(ids, k=len(ids))) for _ in range(NUM_RESAMPLES))
    low, high = drawn[int(0.025 * NUM_RESAMPLES)], drawn[int(0.975 * NUM_RESAMPLES)]
    return Ratio(value(ids), low, high)
