"""Requests on their way: how many there may be, and how one is ended early."""

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
"""Time that a request's thread may take to answer once the request is over: the engine ends a call
within a pass. After that the watchdog answers, or a hung engine would keep the client waiting."""


class Watched(Protocol):
    """The calls of a request to one engine, as far as a watchdog knows them."""

    def abort(self) -> None: ...
    def check(self) -> None: ...


class Flight:
    """One admitted request: polled by the watchdog, checked by its own thread every round."""

    def __init__(
        self,
        is_cancelled: Callable[[], bool],
        deadline_s: float | None,
        start_s: float,
        tenant: str | None = None,
    ) -> None:
        """`deadline_s` after `start_s` (time.monotonic()) the request ends with an error."""
        self.tenant = tenant
        self._is_cancelled = is_cancelled
        self._deadline_s = deadline_s
        self._start_s = start_s
        self.num_at_start = 1
        """Requests in flight when this one was admitted, itself included."""
        self.trace = NOT_TRACED
        """Where its engine calls are shown."""
        self.give_up: Callable[[SpecdecError], object] = lambda _: None
        """Answers the client in the place of the request's thread, which waits for ever."""
        self._calls: list[Watched] = []
        self._target: Watched | None = None
        self.has_landed = False
        """Its last response is on its way."""
        self._gone = False
        self._lost: SpecdecError | None = None
        self._over_s: float | None = None
        self._lock = threading.Lock()

    def watch(self, call: Watched, *, is_target: bool = False) -> None:
        """Lets the watchdog end this engine call when the request is over."""
        self._calls.append(call)
        if is_target:
            self._target = call

    @property
    def target(self) -> Watched | None:
        """The calls to the target, once there are any."""
        return self._target

    def lose(self, error: SpecdecError) -> None:
        """End with `error`: the answer that the request's thread waits for will not come."""
        self._lost = self._lost or error

    def poll(self) -> None:
        """Asks Triton whether the client is still there: a round trip to the server process."""
        with self._lock:
            if not (self.has_landed or self._gone):
                self._gone = self._is_cancelled()

    def over(self) -> SpecdecError | None:
        """Why the request must end now, if it must; of the client as last polled."""
        if self.has_landed:
            return None
        if self._gone:
            return RequestCancelledError("the client has gone or cancelled the request")
        if self._lost is not None:
            return self._lost
        elapsed_s = time.monotonic() - self._start_s
        if self._deadline_s is not None and elapsed_s > self._deadline_s:
            return DeadlineExceededError(
                f"deadline_ms is {self._deadline_s * 1000:.0f}; passed: {elapsed_s * 1000:.0f} ms"
            )
        return None

    def is_stuck(self) -> bool:
        """The request has been over for long, and its thread has not noticed."""
        now_s = time.monotonic()
        self._over_s = self._over_s or now_s
        return self._lost is not None or now_s - self._over_s > GRACE_S

    def land(self) -> None:
        """From here on nobody asks Triton about the request.

        Triton frees it with its last response, and a question about a freed request can take the
        whole server down.
        """
        with self._lock:
            self.has_landed = True

    def check(self) -> None:
        """Raises what `over` returns."""
        if (error := self.over()) is not None:
            raise error

    def abort_calls(self) -> None:
        for call in self._calls:
            call.abort()


class FlightControl:
    """Admits requests while there are places; ended ones must not keep an engine busy.

    A BLS call cannot be cancelled on Triton 24.10, and a thread that waits in one sees nothing;
    so a watchdog looks every `period_s` and sends the engine a stop request, again and again until
    the request is gone (a stop that overtakes its request is lost).
    """

    def __init__(
        self,
        shares: TenantShares,
        period_s: float,
        on_change: Callable[[int], None],
        pulse: Heartbeat = NO_PULSE,
    ) -> None:
        """`pulse` beats with the watchdog; `on_change` hears how many are in flight."""
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
        """Take a place. Raises OverloadedError if there is none for the flight's tenant."""
        with self._lock:
            self._shares.enter(flight.tenant)
            self._flights.add(flight)
            flight.num_at_start = len(self._flights)
            self._on_change(len(self._flights))

    def release(self, flight: Flight) -> bool:
        """Gives a flight's place back; to be called just before its last response is sent.

        Just before, so that a client who asks again at once is not refused. False if it was given
        back before: there is a last response already.
        """
        flight.land()
        with self._lock:
            if flight not in self._flights:
                return False
            self._flights.remove(flight)
            self._shares.leave(flight.tenant)
            self._on_change(len(self._flights))
        return True

    @property
    def num_inflight(self) -> int:
        """Requests that were admitted and have no last response yet."""
        return len(self._flights)

    def lose_all(self, error: SpecdecError) -> None:
        """Answer everybody with `error`: the target has died, or the time of a stop is over."""
        with self._lock:
            for flight in self._flights:
                flight.lose(error)

    def any_target(self) -> Watched | None:
        """Return the target as some request in flight calls it, None without any."""
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
                    if (error := flight.over()) is not None:
                        if flight.is_stuck():
                            flight.give_up(error)
                        flight.abort_calls()
                except Exception:  # noqa: BLE001, S112 - a dead engine ends its own calls
                    continue
