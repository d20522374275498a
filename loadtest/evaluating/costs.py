"""What a plain step and a round take, from the client's clock, over all domains together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.bench.arms import OFF, Arm
from loadtest.bench.counting import DraftCounts, count, together
from loadtest.bench.speed_tables import Measurement, later, of, rate_of


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """Of one drafter: a straight line over the guesses of a round, through the ways measured."""

    plain_s: float
    """A token without speculation."""
    base_s: float
    per_guess_s: float

    def round_s(self, num_guesses: float) -> float:
        """Of a round with so many guesses on average; 0 is a plain step."""
        if num_guesses == 0:
            return self.plain_s
        return self.base_s + self.per_guess_s * num_guesses


def counts_of(measured: Sequence[Measurement]) -> DraftCounts:
    """What became of the guesses of these answers together."""
    return together(count(each.num_tokens, each.statistics or {}) for each in measured)


def round_costs(found: list[Measurement], arms: Sequence[str]) -> RoundCosts:
    """Of the drafter of these arms, behind the first response.

    With one number of guesses the line begins at the plain step: a round's own cost beside the
    guesses cannot be told apart then.
    """
    plain_s = 1.0 / rate_of(of(found, OFF), later)
    points = [_point(of(found, arm)) for arm in arms]
    guesses, times = zip(*points, strict=True)
    if len({Arm.parse(arm).num_draft_tokens for arm in arms}) < 2:
        slope = (times[0] - plain_s) / guesses[0] if guesses[0] else 0.0
        return RoundCosts(plain_s, plain_s, slope)
    # Noise alone can make a longer round seem shorter; guesses never save time.
    slope = max(0.0, float(np.polyfit(guesses, times, 1)[0]))
    return RoundCosts(plain_s, float(np.mean(times) - slope * np.mean(guesses)), slope)


def _point(measured: list[Measurement]) -> tuple[float, float]:
    """Guesses of a round on average, those without any included, and its time."""
    counts = counts_of(measured)
    round_s = sum(each.last_s - each.first_s for each in measured) / sum(
        (each.statistics or {})["round_times"]["num_rounds"] for each in measured
    )
    return counts.num_drafted / counts.num_rounds, round_s
