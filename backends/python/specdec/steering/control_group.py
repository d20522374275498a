"""The measured gain: requests with speculation compared with the control group.

An estimate predicts the gain; this measures it on the same requests. A small random share of them
runs without speculation. The gain is a ratio of seconds per token after the first round. Its
interval comes from the spread over requests (delta method).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY = 1 - 1 / 1000
"""Decay of a request's weight with each newer one."""

MIN_REQUESTS = 5
"""Requests needed in each group before a gain is reported."""

Z_95 = 1.96


@dataclass(slots=True)
class GroupSums:
    """Decayed sums over the requests of one group: seconds, tokens, and their products."""

    num_seen: int = 0
    num_requests: float = 0.0
    seconds: float = 0.0
    tokens: float = 0.0
    seconds_2: float = 0.0
    tokens_2: float = 0.0
    both: float = 0.0

    def add(self, seconds: float, num_tokens: int) -> None:
        self.num_seen += 1
        self.num_requests = self.num_requests * MEMORY + 1
        self.seconds = self.seconds * MEMORY + seconds
        self.tokens = self.tokens * MEMORY + num_tokens
        self.seconds_2 = self.seconds_2 * MEMORY + seconds**2
        self.tokens_2 = self.tokens_2 * MEMORY + num_tokens**2
        self.both = self.both * MEMORY + seconds * num_tokens

    @property
    def pace(self) -> float:
        """Seconds per token."""
        return self.seconds / self.tokens

    @property
    def relative_variance(self) -> float:
        """Variance of the pace ÷ its square."""
        pace = self.pace
        spread = self.seconds_2 - 2 * pace * self.both + pace**2 * self.tokens_2
        shrink = self.num_requests / max(1.0, self.num_requests - 1)
        return max(0.0, spread) * shrink / (pace * self.tokens) ** 2


@dataclass(frozen=True, slots=True)
class MeasuredGain:
    """Seconds per token without speculation ÷ with it, and the 95 % interval."""

    gain: float
    low: float
    high: float


class ControlGroup:
    """Both groups of one task. Callers hold the controller's lock."""

    def __init__(self) -> None:
        self.speculated = GroupSums()
        self.plain = GroupSums()

    def add(self, seconds: float, num_tokens: int, *, is_plain: bool) -> None:
        """Add a request that ran to its end; both figures are without its first round."""
        if num_tokens > 0 and seconds > 0:
            (self.plain if is_plain else self.speculated).add(seconds, num_tokens)

    @property
    def measured(self) -> MeasuredGain | None:
        if min(self.speculated.num_seen, self.plain.num_seen) < MIN_REQUESTS:
            return None
        gain = self.plain.pace / self.speculated.pace
        variance = self.plain.relative_variance + self.speculated.relative_variance
        factor = math.exp(Z_95 * math.sqrt(variance))
        return MeasuredGain(gain, gain / factor, gain * factor)
