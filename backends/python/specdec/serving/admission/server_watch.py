"""End requests when the target dies or hangs, and drain the orchestrator before a stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from pathlib import Path

from specdec.errors import EngineLostError, ShuttingDownError, SpecdecError
from specdec.health.assessment import ANSWER_S, SETTLE_S, Watch
from specdec.health.board import Heartbeat, State, drain_deadline_s, read_board
from specdec.serving.admission.in_flight import RequestsInFlight, Watched

PERIOD_S = 0.1
"""Seconds between two readings of the heartbeat board."""
PROBE_PERIOD_S = 2.0
"""Seconds between two probes of an engine that writes no heartbeat."""
FLUSH_S = 2.0
"""Seconds that writing state to disk may take before `exit_on_dead_engine` ends the server."""


class ServerWatch:
    """The orchestrator's watch over its target and over stops of the server.

    It ends requests when the target is dead or hung, and drains the orchestrator when the server
    stops. Our engines write heartbeats, which show both faults. Other engines are probed over BLS
    while requests are in flight. Triton reports a dead process; an engine that does not answer for
    `hang_s` seconds counts as hung.
    """

    def __init__(
        self,
        requests: RequestsInFlight,
        target: str,
        board: Path,
        heartbeat: Heartbeat,
        hang_s: float,
        flush: Callable[[], None],
        warn: Callable[[str], None],
        *,
        exits_on_dead_engine: bool,
        kill: Callable[[int, int], None] = os.kill,
    ) -> None:
        """Start watching the model `target`.

        `flush` sends queued responses and writes state to disk before the server ends. With
        `exits_on_dead_engine`, tritonserver is killed if the target is dead or hung; `kill` takes
        its process id and a signal.
        """
        self._requests, self._heartbeat = requests, heartbeat
        self._target, self._board = target, board
        self._hang_s, self._flush, self._warn = hang_s, flush, warn
        self._processes = Watch(hang_s)
        self._exits, self._kill = exits_on_dead_engine, kill
        self._tritonserver = os.getppid()
        self._is_draining = False
        self._target_fault = ""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server watch", daemon=True)
        self._thread.start()
        # The thread is not kept: `close` must not wait for it, since it may hang with an engine.
        threading.Thread(target=self._probe, name="target probe", daemon=True).start()

    def check_admission(self) -> None:
        """Raise ShuttingDownError during a stop, EngineLostError if the target is dead or hung."""
        if self._is_draining:
            raise ShuttingDownError("the server is stopping; it takes no new requests")
        if self._target_fault:
            raise EngineLostError(self._target_fault)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(PERIOD_S):
            try:
                deadline_s = drain_deadline_s(self._board)
                if deadline_s is not None and self._drain(deadline_s):
                    return
                self._look_at_target()
            except Exception as error:  # noqa: BLE001 - it must go on watching
                self._warn(f"the watch over {self._target} failed: {error!r}")

    def _drain(self, deadline_s: float) -> bool:
        """Refuse new requests; return whether the others are answered or the deadline is over."""
        self._is_draining = True
        if self._requests.num_inflight and time.monotonic() < deadline_s:
            return False
        self._requests.fail_all(
            ShuttingDownError("the server is stopping, and the time for its last answers is over")
        )
        self._wait_until_answered()
        self._flush()
        self._heartbeat.enter(State.DRAINED)
        return True

    def _look_at_target(self) -> None:
        self._processes.look()
        beats = [each for each in read_board(self._board) if each.model == self._target]
        faults = [fault for each in beats if (fault := self._processes.fault_in(each))]
        if not faults:
            if beats:
                self._target_fault = ""
            return
        self._fail_requests(EngineLostError(faults[0]), faults[0])

    def _fail_requests(self, error: SpecdecError, fault: str) -> None:
        if not self._target_fault:
            self._warn(f"{fault}; {self._requests.num_inflight} requests in flight get an error")
        self._target_fault = fault
        self._requests.fail_all(error)
        if self._exits:
            self._wait_until_answered()
            # Done on a thread, because a full or hanging disk must not keep the server alive.
            flushing = threading.Thread(target=self._flush, name="flush", daemon=True)
            # RuntimeError means that no thread could be started.
            with suppress(RuntimeError):
                flushing.start()
                flushing.join(FLUSH_S)
            time.sleep(SETTLE_S)
            if self._closing.is_set():
                return  # The model is unloaded, so its engine no longer decides about the server.
            self._warn("exit_on_dead_engine: ending the server")
            # If the parent has changed, tritonserver is dead and its id may be another process's.
            if os.getppid() == self._tritonserver:
                self._kill(self._tritonserver, signal.SIGKILL)

    def _wait_until_answered(self) -> None:
        limit_s = time.monotonic() + ANSWER_S
        while self._requests.num_inflight and time.monotonic() < limit_s:
            time.sleep(PERIOD_S / 10)

    def _probe(self) -> None:
        """Probe a target without heartbeat while requests are in flight or it has a fault."""
        target: Watched | None = None
        answer: Future[str | None] = Future()
        answer.set_result("")
        while not self._closing.wait(PROBE_PERIOD_S):
            try:
                target = self._requests.any_target() or (target if self._target_fault else None)
                if target is None or any(
                    each.model == self._target for each in read_board(self._board)
                ):
                    continue
                # One probe at a time, because a hung engine keeps the thread of its probe.
                if answer.done():
                    answer = _asked(target)
                fault = answer.result(self._hang_s)
            # In Python 3.10 this is not the built-in TimeoutError.
            except FutureTimeoutError:
                fault = f"{self._target} has not answered a probe for {self._hang_s:g} s"
            except Exception as error:  # noqa: BLE001 - such as no thread to ask on; ask again
                self._warn(f"{self._target} could not be probed: {error}")
                continue
            if fault:
                self._fail_requests(EngineLostError(fault), fault)
            elif fault is not None:
                self._target_fault = ""


def _asked(target: Watched) -> Future[str | None]:
    """Ask an engine on a new thread whether it is alive.

    The future returns its fault, or "" if it has none, or None if that is unknown.
    """
    answer: Future[str | None] = Future()

    def ask() -> None:
        try:
            target.check()
        except EngineLostError as error:
            answer.set_result(str(error))
        except Exception:  # noqa: BLE001 - another error says nothing of its process
            answer.set_result(None)
        else:
            answer.set_result("")

    # A daemon thread that is never joined, because it may hang with the engine.
    threading.Thread(target=ask, name="target question", daemon=True).start()
    return answer
