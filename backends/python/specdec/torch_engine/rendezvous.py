"""A pass is held back a moment for rounds that are about to come.

Rounds of speculation are calls of their own: behind each the caller needs a moment before the next.
Streams whose calls just miss each other would run in turns, each waiting for the other's pass, at
half the speed of one pass for both. So before a pass it is weighed: all who are ready would wait
for those who are about to return, and those who return would be spared the wait for a whole pass.
How long callers take, and whether they come back at all, is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WEIGHT = 1 / 16
"""Of the newest sample in the means."""

MAX_SHARE = 0.6
"""Of a pass: nobody waits longer for others."""

FORGOTTEN_AFTER_S = 0.5
"""A caller that is not back by then has gone."""


class Mean:
    """Of the recent past."""

    def __init__(self, value: float) -> None:
        self.value = value

    def add(self, sample: float) -> None:
        self.value += WEIGHT * (sample - self.value)


class Rendezvous:
    """Knows who is away between two rounds; driven by the engine's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left_s: dict[str, float] = {}
        """When the round of each caller that is away was answered, oldest first."""
        self._chance = Mean(0.0)
        """Of a caller to come back; strangers who never do are not waited for."""
        self._away_s = Mean(0.0)
        self._spread_s = Mean(0.0)
        self._pass_s = Mean(0.0)

    def answered(self, request_id: str) -> None:
        """A round was, and its answer does not end there."""
        self._left_s[_caller(request_id)] = self._clock()

    def arrived(self, request_id: str, arrival_s: float) -> None:
        """A call came at `arrival_s`, perhaps while a pass was running."""
        left_s = self._left_s.pop(_caller(request_id), None)
        if left_s is None:
            return
        away_s = max(0.0, arrival_s - left_s)
        self._chance.add(1.0)
        self._spread_s.add(abs(away_s - self._away_s.value))
        self._away_s.add(away_s)

    def passed(self, seconds: float) -> None:
        """A pass of rounds and steps has taken so long."""
        self._pass_s.add(seconds)

    def patience_s(self, num_ready: int) -> float:
        """How long `num_ready` ≥ 1 tasks should wait from now; 0 to go."""
        now_s = self._clock()
        self._forget(now_s)
        if not self._left_s:
            return 0.0
        # Who is later than usual may be any moment away.
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

    def _forget(self, now_s: float) -> None:
        for caller, left_s in list(self._left_s.items()):
            if now_s - left_s < FORGOTTEN_AFTER_S:
                return
            del self._left_s[caller]
            self._chance.add(0.0)


def _caller(request_id: str) -> str:
    """Calls of one request are numbered at the end of their ids."""
    return request_id.rpartition(":")[0]
