"""The speed of a simulated phase, as a whole and between two of its tokens."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass, field
from functools import cached_property


@dataclass
class Score:
    """Tokens and seconds of a phase, and of each of its rounds."""

    num_tokens: int = 0
    seconds: float = 0.0
    rounds: list[tuple[int, float]] = field(default_factory=list)
    """(tokens, seconds from the phase's start to the round's end) of each round.

    A step without speculation is a round.
    """

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds

    def pace(self, first: int, last: int | None = None) -> float:
        """Return tokens per second from token `first` to token `last`, or to the end.

        Every policy gets the same requests in the same order. The pace is therefore about nearly
        the same tokens for each of them.
        """
        last = self.num_tokens if last is None else last
        return (last - first) / max(self._confirmed_at_s(last) - self._confirmed_at_s(first), 1e-9)

    def num_rounds_for(self, num_tokens: int) -> int:
        """Return the rounds that ended before the first `num_tokens` tokens were confirmed."""
        return bisect.bisect_left(self._timeline[0], num_tokens)

    def _confirmed_at_s(self, num_tokens: int) -> float:
        """Return the seconds from the phase's start to the first `num_tokens` confirmed tokens."""
        if not num_tokens:
            return 0.0
        counts, times_s = self._timeline
        return times_s[min(bisect.bisect_left(counts, num_tokens), len(times_s) - 1)]

    @cached_property
    def _timeline(self) -> tuple[list[int], list[float]]:
        """The confirmed tokens after each round and its end in seconds; needs a complete score."""
        rounds = sorted(self.rounds, key=lambda each: each[1])
        return [*itertools.accumulate(count for count, _ in rounds)], [at_s for _, at_s in rounds]
