"""The present load: requests in flight, and what they do."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from specdec.steering.choices import Choice
from specdec.steering.steps import Step


@dataclass(frozen=True, slots=True)
class Activity:
    """The present choice of a request, and its rows in a pass."""

    choice: Choice
    num_extra_rows: int = 0
    """Rows of its latest pass beyond one."""


class Load:
    """Counts of requests in flight, and of their activities by drafter. Thread-safe.

    Only requests with a `RequestSteering` report an activity.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_inflight = 1
        self._num_extra_rows = 0
        self._num_looping = 0
        """Requests that run round by round, not in a streaming call."""
        self._num_reading = 0
        self._by_drafter: Counter[str] = Counter()

    def set_inflight(self, count: int) -> None:
        self._num_inflight = count

    @property
    def num_inflight(self) -> int:
        """Requests in flight; at least 1, because the caller is one of them."""
        return max(1, self._num_inflight)

    def step(self, choice: Choice, num_context: int) -> Step:
        """Return the step that runs now, for a request with this choice."""
        with self._lock:
            return Step(
                choice,
                self.num_inflight,
                self._num_looping,
                self.num_inflight + self._num_extra_rows,
                num_context,
                max(1, self._by_drafter[choice.drafter]),
                self._num_reading,
            )

    def begin_reading(self) -> None:
        """Record that the target begins to read a request's prompt."""
        with self._lock:
            self._num_reading += 1

    def end_reading(self) -> None:
        """Record that a request's prompt has been read, or that the request has ended before."""
        with self._lock:
            self._num_reading -= 1

    def change(self, before: Activity | None, after: Activity | None) -> None:
        """Replace a request's activity; None before it has one, and after it has left."""
        with self._lock:
            for activity, sign in ((before, -1), (after, 1)):
                if activity is None or activity.choice.is_off:
                    continue
                self._num_looping += sign
                self._num_extra_rows += sign * activity.num_extra_rows
                self._by_drafter[activity.choice.drafter] += sign
