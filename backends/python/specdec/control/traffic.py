"""How much is going on at the moment, as all requests together see it."""

from __future__ import annotations

import threading


class Traffic:
    """Requests in flight, and the rows of their passes beyond one each. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_inflight = 1
        self._num_extra_rows = 0

    def set_inflight(self, count: int) -> None:
        self._num_inflight = count

    @property
    def num_inflight(self) -> int:
        """At least one: who asks is in flight."""
        return max(1, self._num_inflight)

    @property
    def num_extra_rows(self) -> int:
        return self._num_extra_rows

    def change_rows(self, difference: int) -> None:
        """A request has so many rows more, or fewer, than before."""
        if difference:
            with self._lock:
                self._num_extra_rows += difference
