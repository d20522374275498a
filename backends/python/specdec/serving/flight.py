"""Admit requests, count those in flight, and end one early when its time or its client is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from specdec.errors import (
    DeadlineExceededError,
    RequestCancelledError,
    SpecdecError,
)
from specdec.health.board import NO_PULSE, Heartbeat
from specdec.serving.tenant_shares import TenantShares
from specdec.serving.tracing import NOT_TRACED

GRACE_S = 3.0
"""Seconds that a request's own thread has to answer after the request must end: an engine ends a
call within a pass. Then the watchdog answers, so that a hung engine keeps no client waiting."""


class Watched(Protocol):
    """The calls of a request to one engine, as the watchdog sees them."""

    def abort(self) -> None: ...
    def check(self) -> None: ...


class Flight:
    """One admitted request; the watchdog polls it, and its own thread checks it every round."""

    def __init__(
        self,
        is_cancelled: Callable[[], bool],
        deadline_s: float | None,
        start_s: float,
        tenant: str | None = None,
    ) -> None:
        """The request ends with an error `deadline_s` after `start_s` (time.monotonic())."""
        self.tenant = tenant
        self._is_cancelled = is_cancelled
        self._deadline_s = deadline_s
        self._start_s = start_s
        self.num_at_start = 1
        """Requests in flight when this one was admitted, itself included."""
        self.trace = NOT_TRACED
        """The trace that its engine calls are added to."""
        self.give_up: Callable[[SpecdecError], object] = lambda _: None
        """Answer the client in the place of the request's thread, which waits for an engine."""
        self._calls: list[Watched] = []
        self._target: Watched | None = None
        self.has_ended = False
        """Whether its last response is being sent."""
        self._is_client_gone = False
        self._failure: SpecdecError | None = None
        self._overdue_s: float | None = None
        """time.monotonic() when the watchdog first found that the request must end."""
        self._lock = threading.Lock()

    def watch(self, call: Watched, *, is_target: bool = False) -> None:
        """Let the watchdog abort this engine call when the request must end."""
        self._calls.append(call)
        if is_target:
            self._target = call

    @property
    def target(self) -> Watched | None:
        """The calls to the target; None before the first."""
        return self._target

    def fail(self, error: SpecdecError) -> None:
        """End with `error`: the answer that the request's thread waits for will not come."""
        self._failure = self._failure or error

    def poll(self) -> None:
        """Ask Triton whether the client is still there: a round trip to the server process."""
        with self._lock:
            if not (self.has_ended or self._is_client_gone):
                self._is_client_gone = self._is_cancelled()

    def reason_to_end(self) -> SpecdecError | None:
        """Return why the request must end now, None if it may go on; the client as last polled."""
        if self.has_ended:
            return None
        if self._is_client_gone:
            return RequestCancelledError("the client has gone or cancelled the request")
        if self._failure is not None:
            return self._failure
        elapsed_s = time.monotonic() - self._start_s
        if self._deadline_s is not None and elapsed_s > self._deadline_s:
            return DeadlineExceededError(
                f"deadline_ms is {self._deadline_s * 1000:.0f}; passed: {elapsed_s * 1000:.0f} ms"
            )
        return None

    def check(self) -> None:
        """Raise `reason_to_end`, or RequestCancelledError if the watchdog has answered."""
        if self.has_ended:
            raise RequestCancelledError("the watchdog has answered")
        if (error := self.reason_to_end()) is not None:
            raise error

    def mark_ended(self) -> None:
        """Never ask Triton about the request again.

        Triton frees it with its last response, and a question about a freed request can take the
        whole server down.
        """
        with self._lock:
            self.has_ended = True

    def abort(self, error: SpecdecError) -> None:
        """Abort the engine calls of a request that must end; the watchdog repeats this.

        Answers the client with `error` where the request's thread cannot: at once after a failure,
        else GRACE_S after the first abort.
        """
        now_s = time.monotonic()
        self._overdue_s = self._overdue_s or now_s
        if self._failure is not None or now_s - self._overdue_s > GRACE_S:
            self.give_up(error)
        self.abort_calls()

    def abort_calls(self) -> None:
        """Ask every engine to end what it computes for this request."""
        for call in self._calls:
            call.abort()


class FlightControl:
    """Admits requests while there are free slots, and aborts those that must end.

    A BLS call cannot be cancelled on Triton 24.10, and a thread that waits in one sees nothing. So
    a watchdog looks every `period_s` and sends the engine a stop request, again and again until the
    request has ended: a stop that overtakes its request is lost.
    """

    def __init__(
        self,
        shares: TenantShares,
        period_s: float,
        on_change: Callable[[int], None],
        pulse: Heartbeat = NO_PULSE,
    ) -> None:
        """The watchdog beats `pulse`; `on_change` is given the number of requests in flight."""
        self._pulse = pulse
        self._shares = shares
        self._period_s = period_s
        self._on_change = on_change
        self._lock = threading.Lock()
        self._flights: set[Flight] = set()
        self._closing = threading.Event()
        self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._watchdog.start()

    def admit(self, flight: Flight) -> None:
        """Take a slot. Raises OverloadedError if the flight's tenant may have no more."""
        with self._lock:
            self._shares.enter(flight.tenant)
            self._flights.add(flight)
            flight.num_at_start = len(self._flights)
            self._on_change(len(self._flights))

    def release(self, flight: Flight) -> bool:
        """Give a flight's slot back, just before its last response is sent.

        A client who asks again at once is not refused then. Returns False if the slot was given
        back before: there is a last response already.
        """
        flight.mark_ended()
        with self._lock:
            if flight not in self._flights:
                return False
            self._flights.remove(flight)
            self._shares.leave(flight.tenant)
            self._on_change(len(self._flights))
        return True

    @property
    def num_inflight(self) -> int:
        """Requests that were admitted and whose last response has not been sent."""
        return len(self._flights)

    def fail_all(self, error: SpecdecError) -> None:
        """End every request with `error`: the target has died, or the time of a stop is over."""
        with self._lock:
            for flight in self._flights:
                flight.fail(error)

    def any_target(self) -> Watched | None:
        """Return the target's calls of some request in flight, None if none calls it."""
        with self._lock:
            flights = list(self._flights)
        return next((each.target for each in flights if each.target is not None), None)

    def close(self) -> None:
        self._closing.set()
        self._watchdog.join()

    def _watch(self) -> None:
        while not self._closing.wait(self._period_s):
            with self._lock:
                flights = list(self._flights)
            self._pulse.beat(is_working=bool(flights))
            for flight in flights:
                try:
                    flight.poll()
                    if (error := flight.reason_to_end()) is not None:
                        flight.abort(error)
                except Exception:  # noqa: BLE001, S112 - a dead engine ends its own calls
                    continue
