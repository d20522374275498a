"""When a request begins with a trial of something that is little known."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

TRIAL_EVERY = 16
"""One request of a task in so many begins with a trial, if there is anything to learn; of a task's
first requests those whose number is a power of two."""

STREAMS_UNHURT = 4
"""A trial is paid for by all who share its passes: with more in flight all of them are as much
rarer."""

STREAMS_PER_TRIAL = 32
"""Trials at the same time: one, and one more for each so many requests in flight."""


@dataclass(slots=True)
class _Requests:
    """Of a task."""

    num_started: int = 0
    last_trial: int = 0
    """The number of the request that could begin with a trial last."""


class Trials:
    """Not thread-safe: the controller's lock is held around it."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Requests] = defaultdict(_Requests)
        self._num_running = 0

    def num_started(self, task: str) -> int:
        """Requests of the task so far."""
        return self._tasks[task].num_started

    def is_due(self, task: str, num_inflight: int) -> bool:
        """Whether the request of the task that starts now, with so many in flight, should try."""
        requests = self._tasks[task]
        requests.num_started += 1
        number, times_rarer = requests.num_started, max(1, num_inflight // STREAMS_UNHURT)
        young, rest = divmod(number, times_rarer)
        is_young = not rest and 1 < young < TRIAL_EVERY and young & (young - 1) == 0
        if not is_young and number - requests.last_trial < TRIAL_EVERY * times_rarer:
            return False
        if self._num_running >= max(1, num_inflight // STREAMS_PER_TRIAL):
            return False
        requests.last_trial = number
        return True

    def begin(self) -> None:
        """One that was due begins."""
        self._num_running += 1

    def end(self) -> None:
        """One that began is over."""
        self._num_running -= 1
