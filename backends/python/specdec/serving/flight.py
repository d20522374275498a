"""Requests on their way: how many there may be, and how one is ended early."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from specdec.errors import (
    DeadlineExceededError,
    OverloadedError,
    RequestCancelledError,
    SpecdecError,
)
from specdec.serving.tracing import NOT_TRACED


class Abortable(Protocol):
    """A running engine call that can be asked to end."""

    def abort(self) -> None: ...


class Flight:
    """One admitted request: polled by the watchdog, checked by its own thread every round."""

    def __init__(
        self, is_cancelled: Callable[[], bool], deadline_s: float | None, start_s: float
    ) -> None:
        """`deadline_s` after `start_s` (time.monotonic()) the request ends with an error."""
        self._is_cancelled = is_cancelled
        self._deadline_s = deadline_s
        self._start_s = start_s
        self.num_at_start = 1
        """Requests in flight when this one was admitted, itself included."""
        self.trace = NOT_TRACED
        """Where its engine calls are shown."""
        self._calls: list[Abortable] = []
        self._has_landed = False
        self._gone = False
        self._lock = threading.Lock()

    def watch(self, call: Abortable) -> None:
        """Lets the watchdog end this engine call when the request is over."""
        self._calls.append(call)

    def poll(self) -> None:
        """Asks Triton whether the client is still there: a round trip to the server process."""
        with self._lock:
            if not (self._has_landed or self._gone):
                self._gone = self._is_cancelled()

    def over(self) -> SpecdecError | None:
        """Why the request must end now, if it must; of the client as last polled."""
        if self._has_landed:
            return None
        if self._gone:
            return RequestCancelledError("the client has gone or cancelled the request")
        elapsed_s = time.monotonic() - self._start_s
        if self._deadline_s is not None and elapsed_s > self._deadline_s:
            return DeadlineExceededError(
                f"deadline_ms is {self._deadline_s * 1000:.0f}; passed: {elapsed_s * 1000:.0f} ms"
            )
        return None

    def land(self) -> None:
        """From here on nobody asks Triton about the request.

        Triton frees it with its last response, and a question about a freed request can take the
        whole server down.
        """
        with self._lock:
            self._has_landed = True

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
            flight.num_at_start = len(self._flights)
            self._on_change(len(self._flights))

    def release(self, flight: Flight) -> None:
        """Gives a flight's place back; to be called just before its last response is sent.

        Just before, so that a client who asks again at once is not refused.
        """
        flight.land()
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
                try:
                    flight.poll()
                    if flight.over() is not None:
                        flight.abort_calls()
                except Exception:  # noqa: BLE001, S112 - a dead engine ends its own calls
                    continue
