"""The measured gain: requests that were speculated on against a few that were not.

An estimate says what speculation should give; this says what it gave, on the same traffic. A small
share of the requests, drawn by chance, runs plain. Compared are seconds per token behind the first,
as ratios of sums; the interval comes from the spread over requests (delta method).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY = 1 - 1 / 1000
"""Weight of a request against the next one's."""

MIN_REQUESTS = 5
"""Of either kind, before anything is said."""

Z_95 = 1.96


@dataclass(slots=True)
class Arm:
    """Decayed sums over requests: seconds, tokens, and their products."""

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
        """Of the pace, over its square."""
        pace = self.pace
        spread = self.seconds_2 - 2 * pace * self.both + pace**2 * self.tokens_2
        shrink = self.num_requests / max(1.0, self.num_requests - 1)
        return max(0.0, spread) * shrink / (pace * self.tokens) ** 2


@dataclass(frozen=True, slots=True)
class MeasuredGain:
    """Plain seconds per token ÷ speculated, with its 95 % interval."""

    gain: float
    low: float
    high: float


class ControlGroup:
    """Of one task. Not thread-safe: the controller's lock is held around it."""

    def __init__(self) -> None:
        self.speculated = Arm()
        self.plain = Arm()

    def add(self, seconds: float, num_tokens: int, *, is_plain: bool) -> None:
        """A request that ran to its end: what came behind its first tokens."""
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
