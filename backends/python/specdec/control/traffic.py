"""How much is going on at the moment, as all requests together see it."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from specdec.control.choices import Choice

UNSETTLED_SHARE = 1 / 3
"""Of the requests in flight: with more at their prompts, times say nothing of the load."""

USUAL_OVER = 256
"""Rounds over which it is seen how many are usually at their prompts."""

UNUSUAL = 1.5
"""Times as many as usual; where prompts are most of the work, they are part of the load."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What one request does at the moment."""

    choice: Choice
    num_extra_rows: int = 0
    """Of its passes, beyond one."""


class Traffic:
    """Requests in flight, and what those that are steered do. Thread-safe."""

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
        """At least one: who asks is in flight."""
        return max(1, self._num_inflight)

    @property
    def num_extra_rows(self) -> int:
        return self._num_extra_rows

    @property
    def num_looping(self) -> int:
        """Requests that run round by round instead of in one call."""
        return self._num_looping

    def is_settled(self) -> bool:
        """Not many have their prompts read at once, as where a crowd has just come.

        To be asked once for each round.
        """
        with self._lock:
            share = self._num_reading / self.num_inflight
            self._usual_share += (share - self._usual_share) / USUAL_OVER
            return share <= max(UNSETTLED_SHARE, UNUSUAL * self._usual_share)

    def read(self, change: int) -> None:
        """A request's prompt begins to be read (1), or is read (-1)."""
        with self._lock:
            self._num_reading += change

    def num_with(self, lead: str) -> int:
        """Requests for which this lead drafts."""
        return self._by_lead[lead]

    def change(self, before: Activity | None, after: Activity | None) -> None:
        """A request does something else than before; None: it is not there."""
        with self._lock:
            for activity, sign in ((before, -1), (after, 1)):
                if activity is None or activity.choice.is_off:
                    continue
                self._num_looping += sign
                self._num_extra_rows += sign * activity.num_extra_rows
                self._by_lead[activity.choice.lead] += sign
