"""Admit and count requests in flight; end them at their deadline or when their client leaves."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from specdec.errors import (
    DeadlineExceededError,
    RequestCancelledError,
    SpecdecError,
)
from specdec.health.board import NO_HEARTBEAT, Heartbeat
from specdec.serving.admission.tenant_shares import TenantShares
from specdec.serving.tracing import NOT_TRACED

GRACE_S = 3.0
"""Seconds that a request's own thread has to answer once the request must end; an engine ends a
call within a pass. After that the watchdog answers, so that no client waits for a hung engine."""

MAX_POLLS = 8
"""Most clients that the watchdog asks for in one turn. Each costs a round trip to Triton's process,
60 µs of processor time on a Zen 4 core: 6 % of a core with 48 requests, 20 turns a second."""


class Watched(Protocol):
    """A request's calls to one engine, as the watchdog sees them."""

    def abort(self) -> None: ...
    def check(self) -> None: ...


class RequestInFlight:
    """One admitted request; the watchdog polls it, and its own thread checks it every round."""

    def __init__(
        self,
        is_cancelled: Callable[[], bool],
        deadline_s: float | None,
        start_s: float,
        tenant: str | None = None,
    ) -> None:
        """Take what decides about the request's end.

        `is_cancelled` asks Triton whether the client has gone. The request ends with an error
        `deadline_s` seconds after `start_s` (time.monotonic()); None sets no deadline.
        """
        self.tenant = tenant
        self._is_cancelled = is_cancelled
        self._deadline_s = deadline_s
        self._start_s = start_s
        self.trace = NOT_TRACED
        """The trace that its engine calls are added to."""
        self.give_up: Callable[[SpecdecError], object] = lambda _: None
        """Function that answers the client with an error while the request's thread waits for an
        engine."""
        self._calls: list[Watched] = []
        self._target: Watched | None = None
        self.has_ended = False
        """Whether its last response has been sent or is about to be."""
        self._is_client_gone = False
        self._failure: SpecdecError | None = None
        self._overdue_s: float | None = None
        """time.monotonic() when the watchdog first found that the request must end; None before."""
        self._lock = threading.Lock()

    def watch(self, call: Watched, *, is_target: bool = False) -> None:
        """Let the watchdog abort these engine calls when the request must end.

        `is_target`: they are the calls to the target.
        """
        self._calls.append(call)
        if is_target:
            self._target = call

    @property
    def target(self) -> Watched | None:
        """The calls to the target; None until they exist."""
        return self._target

    def fail(self, error: SpecdecError) -> None:
        """End the request with `error`, because the answer of its engine will not come.

        Of several errors the first counts.
        """
        self._failure = self._failure or error

    def poll(self) -> None:
        """Ask Triton whether the client is still there; this is a round trip to its process."""
        with self._lock:
            if not (self.has_ended or self._is_client_gone):
                self._is_client_gone = self._is_cancelled()

    def reason_to_end(self) -> SpecdecError | None:
        """Return the error by which the request must end now; None if it may go on.

        Whether the client has gone is known from the last `poll`.
        """
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
        """Raise the error of `reason_to_end`, if there is one.

        Raises RequestCancelledError if the last response has been sent, as by the watchdog.
        """
        if self.has_ended:
            raise RequestCancelledError("the watchdog has answered")
        if (error := self.reason_to_end()) is not None:
            raise error

    def mark_ended(self) -> None:
        """Make sure that Triton is never asked about the request again.

        Triton frees the request with its last response. A question about a freed request can take
        the whole server down.
        """
        with self._lock:
            self.has_ended = True

    def abort(self, error: SpecdecError) -> None:
        """Abort the engine calls of a request that must end; the watchdog calls this repeatedly.

        Answers the client with `error` if the request's thread may be stuck: at once after `fail`,
        else GRACE_S after the first abort.
        """
        now_s = time.monotonic()
        self._overdue_s = self._overdue_s or now_s
        if self._failure is not None or now_s - self._overdue_s > GRACE_S:
            self.give_up(error)
        self.abort_calls()

    def abort_calls(self) -> None:
        """Ask every engine to end its call for this request."""
        for call in self._calls:
            # An engine that has ended takes no stop; the others must hear of it all the same.
            with suppress(Exception):
                call.abort()


class RequestsInFlight:
    """Admits requests while there are free slots, and aborts those that must end.

    Triton 24.10 cannot cancel a BLS call, and a thread that waits in one notices nothing. So a
    watchdog looks every `period_s` seconds and sends stop requests to the engine. It repeats them
    until the request has ended, because a stop that overtakes its request is lost. With more than
    MAX_POLLS requests, their clients are asked for in turn.
    """

    def __init__(
        self,
        shares: TenantShares,
        period_s: float,
        on_change: Callable[[int], None],
        heartbeat: Heartbeat = NO_HEARTBEAT,
    ) -> None:
        """Start the watchdog, which beats `heartbeat` in each turn.

        `on_change` is called with the number of requests in flight whenever it changes.
        """
        self._heartbeat = heartbeat
        self._shares = shares
        self._period_s = period_s
        self._on_change = on_change
        self._lock = threading.Lock()
        self._requests: deque[RequestInFlight] = deque()
        """All requests, the one whose client is asked for next at the left."""
        self._closing = threading.Event()
        self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._watchdog.start()

    def admit(self, request: RequestInFlight) -> None:
        """Take a slot for a request.

        Raises OverloadedError if no slot is free or the request's tenant may have no more.
        """
        with self._lock:
            self._shares.enter(request.tenant)
            self._requests.append(request)
            self._on_change(len(self._requests))

    def release(self, request: RequestInFlight) -> bool:
        """Give a request's slot back, just before its last response is sent.

        So a client that sends its next request at once finds the slot free. Returns False if the
        slot was given back before, because then there is a last response already.
        """
        request.mark_ended()
        with self._lock:
            if request not in self._requests:
                return False
            self._requests.remove(request)
            self._shares.leave(request.tenant)
            self._on_change(len(self._requests))
        return True

    @property
    def num_inflight(self) -> int:
        """Requests that were admitted and whose last response has not been sent."""
        return len(self._requests)

    def fail_all(self, error: SpecdecError) -> None:
        """End every request in flight with `error`, as after the target's death or a drain."""
        with self._lock:
            for request in self._requests:
                request.fail(error)

    def any_target(self) -> Watched | None:
        """Return the calls to the target of any request in flight; None if there are none."""
        with self._lock:
            requests = list(self._requests)
        return next((each.target for each in requests if each.target is not None), None)

    def close(self) -> None:
        """End the watchdog."""
        self._closing.set()
        self._watchdog.join()

    def _watch(self) -> None:
        while not self._closing.wait(self._period_s):
            with self._lock:
                requests = list(self._requests)
                self._requests.rotate(-MAX_POLLS)
            self._heartbeat.beat(is_working=bool(requests))
            for number, request in enumerate(requests):
                try:
                    if number < MAX_POLLS:
                        request.poll()
                    if (error := request.reason_to_end()) is not None:
                        request.abort(error)
                except Exception:  # noqa: BLE001, S112 - the watchdog must go on
                    continue
