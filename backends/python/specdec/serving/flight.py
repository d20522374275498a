"""Requests on their way: how many there may be, and how one is ended early."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from specdec.errors import (
    DeadlineExceededError,
    OverloadedError,
    RequestCancelledError,
    SpecdecError,
)


class Abortable(Protocol):
    """A running engine call that can be asked to end."""

    def abort(self) -> None: ...


class Flight:
    """One admitted request. Polled by its own thread every round and by the watchdog."""

    def __init__(
        self, is_cancelled: Callable[[], bool], deadline_s: float | None, start_s: float
    ) -> None:
        """`deadline_s` after `start_s` (time.monotonic()) the request ends with an error."""
        self._is_cancelled = is_cancelled
        self._deadline_s = deadline_s
        self._start_s = start_s
        self._calls: list[Abortable] = []

    def watch(self, call: Abortable) -> None:
        """Lets the watchdog end this engine call when the request is over."""
        self._calls.append(call)

    def over(self) -> SpecdecError | None:
        """Why the request must end now, if it must."""
        if self._is_cancelled():
            return RequestCancelledError("the client has gone or cancelled the request")
        elapsed_s = time.monotonic() - self._start_s
        if self._deadline_s is not None and elapsed_s > self._deadline_s:
            return DeadlineExceededError(
                f"deadline_ms is {self._deadline_s * 1000:.0f}; passed: {elapsed_s * 1000:.0f} ms"
            )
        return None

    def check(self) -> None:
        """Raises what `over` returns."""
        if (error := self.over()) is not None:
            raise error

    def abort_calls(self) -> None:
        for call in self._calls:
            call.abort()


class FlightControl:
    """Admits up to `limit` requests, and watches that ended ones do not keep an engine busy.

    A BLS call cannot be cancelled on Triton 24.10, and a thread that waits in one sees nothing;
    so a watchdog looks every `period_s` and sends the engine a stop request, again and again until
    the request is gone (a stop that overtakes its request is lost).
    """

    def __init__(self, limit: int, period_s: float, on_change: Callable[[int], None]) -> None:
        self._limit = limit
        self._period_s = period_s
        self._on_change = on_change
        self._lock = threading.Lock()
        self._flights: set[Flight] = set()
        self._closing = threading.Event()
        self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._watchdog.start()

    def admit(self, flight: Flight) -> None:
        """Takes a place. Raises OverloadedError when there is none."""
        with self._lock:
            if len(self._flights) >= self._limit:
                raise OverloadedError(
                    f"{len(self._flights)} requests are in flight; the limit is {self._limit}"
                )
            self._flights.add(flight)
            self._on_change(len(self._flights))

    @contextmanager
    def landing(self, flight: Flight) -> Iterator[None]:
        """Gives the place of an admitted flight back at the end."""
        try:
            yield
        finally:
            with self._lock:
                self._flights.discard(flight)
                self._on_change(len(self._flights))

    def close(self) -> None:
        self._closing.set()
        self._watchdog.join()

    def _watch(self) -> None:
        while not self._closing.wait(self._period_s):
            with self._lock:
                flights = list(self._flights)
            for flight in flights:
                if flight.over() is not None:
                    try:
                        flight.abort_calls()
                    except Exception:  # noqa: BLE001, S112 - a dead engine ends its own calls
                        continue
