"""The measured gain: requests with speculation compared with the control group.

An estimate predicts the gain; this measures it on the same requests. A small random share of them
runs without speculation. The gain is a ratio of seconds per token after the first round. Its
interval comes from the spread over requests (delta method).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from specdec.steering.estimates import Mean

MIN_REQUESTS = 5
"""Requests needed in each group before a gain is reported; with fewer, the interval says little."""

Z_95 = NormalDist().inv_cdf(1 - 0.05 / 2)
"""Standard errors on each side of a mean in its 95 % interval."""


@dataclass(slots=True)
class Group:
    """The seconds and tokens of one group's requests, the newest with most weight."""

    num_requests: int = 0
    products: Mean = field(default_factory=Mean)
    """Mean products of (1, seconds, tokens) of a request, [3, 3]; decayed by request."""

    def add(self, seconds: float, num_tokens: int) -> None:
        """Add a request."""
        self.num_requests += 1
        values = np.array([1.0, seconds, num_tokens])
        self.products.add(np.outer(values, values), now_s=0.0)

    @property
    def pace(self) -> float:
        """Seconds per token."""
        _, seconds, tokens = self.products.value[0]
        return float(seconds / tokens)

    @property
    def relative_variance(self) -> float:
        """Variance of the pace ÷ its square."""
        rest = np.array([0.0, 1.0, -self.pace])
        spread = max(0.0, float(rest @ self.products.value @ rest))
        seconds = float(self.products.value[0, 1])
        return spread / (max(1.0, self.products.weight - 1) * seconds**2)


@dataclass(frozen=True, slots=True)
class MeasuredGain:
    """Seconds per token without speculation ÷ with it, and the 95 % interval."""

    gain: float
    low: float
    high: float


class ControlGroup:
    """Both groups of one task. Callers hold the controller's lock."""

    def __init__(self) -> None:
        self.speculated = Group()
        self.plain = Group()

    def add(self, seconds: float, num_tokens: int, *, is_plain: bool) -> None:
        """Add a request that ran to its end; both figures are without its first round."""
        if num_tokens > 0 and seconds > 0:
            (self.plain if is_plain else self.speculated).add(seconds, num_tokens)

    @property
    def measured(self) -> MeasuredGain | None:
        """The gain; None before there are enough requests."""
        if min(self.speculated.num_requests, self.plain.num_requests) < MIN_REQUESTS:
            return None
        gain = self.plain.pace / self.speculated.pace
        variance = self.plain.relative_variance + self.speculated.relative_variance
        factor = math.exp(Z_95 * math.sqrt(variance))
        return MeasuredGain(gain, gain / factor, gain * factor)
