"""Times of a plain step and of a round by the client's clock, over all domains together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specdec.loadtest.kit.answers import (
    Measurement,
    after_first_response,
    answers_of_arm,
    counts_of,
    rate_of,
)
from specdec.loadtest.kit.arms import OFF, Arm


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """The time of one drafter's rounds: a straight line over the draft tokens of a round.

    Times are in seconds.
    """

    plain_s: float
    """Time of a token without speculation."""
    base_s: float
    per_draft_token_s: float

    def round_s(self, num_draft_tokens: float) -> float:
        """Return the seconds of a round with `num_draft_tokens` draft tokens on average.

        A round with 0 draft tokens is a plain step.
        """
        if num_draft_tokens == 0:
            return self.plain_s
        return self.base_s + self.per_draft_token_s * num_draft_tokens


def round_costs(found: list[Measurement], arms: Sequence[str]) -> RoundCosts:
    """Return the costs of the drafter of these arms, from the time after each first response.

    If the arms have one k only, the line begins at the plain step: a round's fixed cost cannot be
    separated from that of its draft tokens then. `found` must also hold answers of the arm `off`.
    """
    plain_s = 1.0 / rate_of(answers_of_arm(found, OFF), after_first_response)
    points = [_point(answers_of_arm(found, arm)) for arm in arms]
    lengths, times = zip(*points, strict=True)
    if len({Arm.parse(arm).num_draft_tokens for arm in arms}) < 2:
        slope = (times[0] - plain_s) / lengths[0] if lengths[0] else 0.0
        return RoundCosts(plain_s, plain_s, slope)
    # Noise alone can make a longer round seem faster, but draft tokens never save time.
    slope = max(0.0, float(np.polyfit(lengths, times, 1)[0]))
    return RoundCosts(plain_s, float(np.mean(times) - slope * np.mean(lengths)), slope)


def _point(measured: list[Measurement]) -> tuple[float, float]:
    """Return mean draft tokens per round and mean seconds per round.

    Rounds without a draft count too.
    """
    counts = counts_of(measured)
    round_s = sum(each.last_s - each.first_s for each in measured) / sum(
        (each.statistics or {})["round_times"]["num_rounds"] for each in measured
    )
    return counts.num_drafted / counts.num_rounds, round_s
