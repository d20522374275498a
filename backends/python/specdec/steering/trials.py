"""The schedule of trials: which requests begin with a choice about which little is known."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

TRIAL_EVERY = 16
"""Requests of a task from one trial to the next, if there is anything to learn. A new task's 2nd,
4th and 8th requests may begin with a trial too."""

STREAMS_UNHURT = 4
"""Requests in flight up to which trials keep their rate. With n times as many, trials are n times
rarer, because all requests in a pass pay for a trial."""

STREAMS_PER_TRIAL = 32
"""Requests in flight for each trial that may run at the same time; one may always run."""


@dataclass(slots=True)
class _Requests:
    """Counts of one task's requests."""

    num_started: int = 0
    last_trial: int = 0
    """Number of the latest request that was allowed a trial; 0 if there was none."""


class Trials:
    """The schedule of trials of all tasks. Callers hold the controller's lock."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Requests] = defaultdict(_Requests)
        self._num_running = 0

    def num_started(self, task: str) -> int:
        """Return how many requests of the task have started."""
        return self._tasks[task].num_started

    def is_due(self, task: str, num_inflight: int) -> bool:
        """Count a starting request of the task, and return whether it may begin with a trial."""
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
        """Count a trial that begins."""
        self._num_running += 1

    def end(self) -> None:
        """Count a trial that ends."""
        self._num_running -= 1
