"""Decide how often the tokens of each stream are sent, so that sending does not slow the engine."""

from __future__ import annotations

import os
import threading

RESPONSES_PER_CORE_S = 40.0
"""Responses per second and core for all streams together. One costs 1.2 ms of processor time on its
way to the client (Zen 4), so that they take 5 % of the cores."""

MAX_RESPONSES_PER_S = 640.0
"""Responses per second on machines with many cores: one Python process forwards them all, and each
takes 0.6 ms of its time."""

MAX_HOLD_S = 0.5
"""Longest time between two responses of a stream whose engine goes on."""


class StreamPace:
    """The number of streams, and the time between two responses of each; thread-safe.

    A single stream gets the tokens of each step at once. With more streams each waits longer, and
    then gets the tokens of several steps in one response.
    """

    def __init__(self, num_cores: int | None = None) -> None:
        """Take the number of cores; None for those that this process may use."""
        cores = num_cores or len(os.sched_getaffinity(0))
        self._responses_per_s = min(RESPONSES_PER_CORE_S * cores, MAX_RESPONSES_PER_S)
        self._num_streams = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Count a new stream."""
        with self._lock:
            self._num_streams += 1

    def end(self) -> None:
        """Take a stream from the count."""
        with self._lock:
            self._num_streams -= 1

    @property
    def interval_s(self) -> float:
        """Seconds from a response of a stream to its next one."""
        return min(MAX_HOLD_S, max(0, self._num_streams - 1) / self._responses_per_s)
