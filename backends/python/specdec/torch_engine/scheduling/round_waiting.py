"""The decision on whether a pass should wait a moment for rounds that are about to arrive.

Each round of speculation is a call of its own, and the caller needs a moment between two calls. If
the calls of two requests just miss each other, their passes run in turns. Each request then waits
for the other's pass, at half the speed of one pass for both.

Before a pass, costs and gains are compared. Waiting costs time for all tasks that are ready. It
saves each returning caller the wait for a whole pass. The time until callers return, and the share
of callers that return at all, are measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from specdec.torch_engine.task import caller_and_number

WEIGHT = 1 / 16
"""Weight of the newest sample in the means."""

MAX_SHARE = 0.6
"""Longest wait, as a share of the time of a pass."""

FORGOTTEN_AFTER_S = 0.5
"""Seconds after which a caller that has not returned is no longer expected."""


class Mean:
    """An exponentially weighted mean of recent samples."""

    def __init__(self, value: float) -> None:
        self.value = value

    def add(self, sample: float) -> None:
        self.value += WEIGHT * (sample - self.value)


class RoundWaiting:
    """The callers between two rounds, and how long a pass should wait for them.

    Used by the engine's thread only. A caller is one request that calls this engine in rounds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left_s: dict[str, float] = {}
        """The time at which each absent caller got its last answer, oldest first."""
        self._chance = Mean(0.0)
        """Chance that a caller returns; 0 until the first one has returned."""
        self._away_s = Mean(0.0)
        """Seconds between an answer and the caller's next call."""
        self._spread_s = Mean(0.0)
        """Mean distance of that time from its mean, in seconds."""
        self._pass_s = Mean(0.0)
        """Seconds that a pass without prompts takes."""

    def answered(self, request_id: str) -> None:
        """Record that a round was answered and that its request continues."""
        self._left_s[caller_and_number(request_id)[0]] = self._clock()

    def arrived(self, request_id: str, arrival_s: float) -> None:
        """Record a call that arrived at `arrival_s`, in seconds of the clock.

        That may be earlier than now, if a pass was running when the call came.
        """
        left_s = self._left_s.pop(caller_and_number(request_id)[0], None)
        if left_s is None:
            return
        away_s = max(0.0, arrival_s - left_s)
        self._chance.add(1.0)
        self._spread_s.add(abs(away_s - self._away_s.value))
        self._away_s.add(away_s)

    def passed(self, seconds: float) -> None:
        """Record how long a pass without prompts took."""
        self._pass_s.add(seconds)

    def wait_s(self, num_ready: int) -> float:
        """Return the seconds that `num_ready` ≥ 1 tasks should wait; 0 to run the pass now."""
        now_s = self._clock()
        # Most callers return before this. The return of a later one cannot be predicted, so the
        # pass does not wait for it.
        expected_s = self._away_s.value + 2 * self._spread_s.value
        waits_s = [left_s + expected_s - now_s for left_s in self._left_s.values()]
        waits_s = sorted(wait_s for wait_s in waits_s if wait_s > 0)
        pass_s, chance, best_s, most = self._pass_s.value, self._chance.value, 0.0, 0.0
        for num_back, wait_s in enumerate(waits_s, start=1):
            if wait_s > MAX_SHARE * pass_s:
                break
            spared_s = chance * num_back * (pass_s - wait_s) - num_ready * wait_s
            if spared_s > most:
                best_s, most = wait_s, spared_s
        return best_s

    def forget_absent(self) -> None:
        """Forget the callers that have been away for FORGOTTEN_AFTER_S: they will not return."""
        now_s = self._clock()
        for caller, left_s in list(self._left_s.items()):
            if now_s - left_s < FORGOTTEN_AFTER_S:
                return
            del self._left_s[caller]
            self._chance.add(0.0)
