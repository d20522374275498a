"""The present load: requests in flight, and what they do."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from specdec.steering.choices import Choice

UNSETTLED_SHARE = 1 / 3
"""Share of requests in flight whose prompts are being read, above which times are no fair samples
of the load."""

USUAL_OVER = 256
"""Rounds over which the usual share of such requests is averaged."""

UNUSUAL = 1.5
"""Multiple of the usual share that is still fair. If prompts are most of the work, they are part of
the load."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The present choice of a request, and its rows in a pass."""

    choice: Choice
    num_extra_rows: int = 0
    """Rows of its latest pass beyond one."""


class Load:
    """Counts of requests in flight, and of what those with a `RequestSteering` do. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_inflight = 1
        self._num_extra_rows = 0
        self._num_looping = 0
        self._num_reading = 0
        self._usual_share = 0.0
        self._by_lead: Counter[str] = Counter()

    def set_inflight(self, count: int) -> None:
        self._num_inflight = count

    @property
    def num_inflight(self) -> int:
        """Requests in flight; at least 1, because the caller is one of them."""
        return max(1, self._num_inflight)

    @property
    def num_extra_rows(self) -> int:
        return self._num_extra_rows

    @property
    def num_looping(self) -> int:
        """Requests that run round by round, not in a streaming call."""
        return self._num_looping

    def is_settled(self) -> bool:
        """Return whether few enough prompts are being read for times to be fair samples.

        Each call also updates the usual share, so call it once a round.
        """
        with self._lock:
            share = self._num_reading / self.num_inflight
            self._usual_share += (share - self._usual_share) / USUAL_OVER
            return share <= max(UNSETTLED_SHARE, UNUSUAL * self._usual_share)

    def read(self, change: int) -> None:
        """Record that a request's prompt begins to be read (1), or has been read (-1)."""
        with self._lock:
            self._num_reading += change

    def num_with(self, lead: str) -> int:
        """Return the number of requests whose choice is this drafter."""
        return self._by_lead[lead]

    def change(self, before: Activity | None, after: Activity | None) -> None:
        """Replace a request's activity; None before it has one, and after it has left."""
        with self._lock:
            for activity, sign in ((before, -1), (after, 1)):
                if activity is None or activity.choice.is_off:
                    continue
                self._num_looping += sign
                self._num_extra_rows += sign * activity.num_extra_rows
                self._by_lead[activity.choice.lead] += sign
