"""Run tritonserver, restart it when one of its processes dies or hangs, and drain it for a stop."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec.health.assessment import ANSWER_S, SETTLE_S
from specdec.health.endpoint import Health, HealthEndpoint
from specdec.launch.child_server import ChildServer
from specdec.launch.gateway_process import GatewayProcess
from specdec.launch.installation import LaunchError

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from specdec.health.assessment import Assessment
    from specdec.launch.server_command import ServeSettings

POLL_INTERVAL_S = 0.1
"""Seconds between two checks of the server."""
STOP_GRACE_S = 5.0
"""Seconds after the drain limit within which all processes end."""
MAX_DEATHS, DEATH_WINDOW_S = 5, 600.0
"""Deaths after which the supervisor gives up, if they fall within a window of this many seconds."""
MAX_DRAFT_RESTARTS = 3
"""Most restarts for a dead draft model within DEATH_WINDOW_S; then answers go on without it."""
MIN_RESTART_S, RESTART_FACTOR = 120.0, 3.0
"""Limits of a restart, in seconds and in multiples of the first start's time. A restart that takes
longer than both counts as a death."""
FIRST_PAUSE_S = 1.0
"""Seconds to wait before the second restart in a window; the wait doubles with each further one."""
EXIT_GAVE_UP = 70
"""Exit status after too many deaths: EX_SOFTWARE of sysexits.h."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(
    settings: ServeSettings, *, parent_pid: int | None = None, pid_file: Path | None = None
) -> int:
    """Run tritonserver until a signal, a start that fails, or too many deaths; return the status.

    The status is 0 after a stop, EXIT_GAVE_UP after too many deaths, and 128 + n if a second signal
    n ended the server at once. If the server was never ready, the status is tritonserver's own if
    that ended with an error, else 1.

    SIGINT, SIGTERM and SIGHUP drain and stop the server. With `parent_pid` it also stops when that
    process is no longer our parent. `pid_file` receives tritonserver's process id at each start.
    Raises LaunchError if there is no tritonserver, or if the health port cannot be used.
    """
    return _Supervisor(settings, parent_pid, pid_file).run()


@dataclass(frozen=True, slots=True)
class _Fault:
    """The reason why the server must be started again."""

    text: str
    is_draft: bool = False
    """Whether only a draft model has died, so that requests are answered without it meanwhile."""


class _Supervisor:
    """The supervisor. Everything except its health endpoint runs on the main thread."""

    def __init__(
        self, settings: ServeSettings, parent_pid: int | None, pid_file: Path | None
    ) -> None:
        self._settings = settings
        self._parent_pid = parent_pid
        self._pid_file = pid_file
        self._signals: list[int] = []
        self._deaths: deque[float] = deque()
        self._draft_restarts: deque[float] = deque()
        self._start_s: float | None = None
        """Seconds that the first start took; None until the server has been ready."""
        self._gateway = GatewayProcess(settings)
        # Handlers are set before the first start, so that a signal during it orphans no process.
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        try:
            self._endpoint = HealthEndpoint(settings.address, settings.health_port)
        except OSError as error:
            raise LaunchError(
                f"cannot listen on health port {settings.health_port}: {error}"
            ) from error

    def run(self) -> int:
        """Run tritonserver as `serve` describes; return the exit status."""
        try:
            self._gateway.start()
            while True:
                status = self._run_once()
                if status is not None:
                    return status
                if not self._pause():
                    return 0
        finally:
            self._gateway.stop()
            self._endpoint.close()
            if self._pid_file is not None:
                self._pid_file.unlink(missing_ok=True)

    def _run_once(self) -> int | None:
        """Run one tritonserver to its end; return the exit status, or None to start another."""
        self._report(is_ready=False, reason="starting")
        try:
            child = ChildServer(self._settings)
        except OSError as error:
            if self._start_s is None:
                raise LaunchError(f"tritonserver could not be started: {error}") from error
            return self._count_death(f"tritonserver could not be started: {error}")
        has_ended = False
        try:
            self._write_pid(child.pid)
            fault = self._watch(child)
            has_ended = child.ended()
            if fault is None or not self._let_requests_end(child, fault):
                return self._stop(child)
            if fault.is_draft and (fatal := child.look().fatal):
                # Another process has died during the drain.
                fault = _Fault(fatal)
        finally:
            status = child.end()
        if self._start_s is None:
            # No message, because tritonserver's log says why it has ended.
            if has_ended:
                return status or 1
            _say(f"{fault.text}; the server was never ready")
            return 1
        if fault.is_draft:
            self._draft_restarts.append(time.monotonic())
            _forget_old(self._draft_restarts)
            _say(f"{fault.text}; starting again")
            return None
        return self._count_death(fault.text)

    def _watch(self, child: ChildServer) -> _Fault | None:
        """Watch until the server has a fault, and return it; None if a stop was requested."""
        start_s = time.monotonic()
        while not self._should_stop():
            if news := self._gateway.look():
                _say(news)
            if child.ended():
                return _Fault("tritonserver has ended by itself")
            assessment = child.look()
            if assessment.fatal:
                return _Fault(assessment.fatal)
            seconds = time.monotonic() - start_s
            if child.was_ready:
                self._start_s = self._start_s or seconds
            elif self._start_s is not None and seconds > max(
                MIN_RESTART_S, RESTART_FACTOR * self._start_s
            ):
                return _Fault(f"the server is not ready {seconds:.0f} s after its restart")
            if assessment.degraded and self._may_restart_for_draft(child):
                return _Fault(f"{assessment.degraded}; nothing is in flight", is_draft=True)
            is_ready = child.was_ready and assessment.is_ready
            self._report(is_ready=is_ready, reason=_reason_line(assessment, is_ready=is_ready))
            time.sleep(POLL_INTERVAL_S)
        return None

    def _may_restart_for_draft(self, child: ChildServer) -> bool:
        """Say whether no request is in flight and MAX_DRAFT_RESTARTS is not reached."""
        is_idle = child.was_ready and not child.has_requests()
        return is_idle and _num_recent(self._draft_restarts) < MAX_DRAFT_RESTARTS

    def _stop(self, child: ChildServer) -> int:
        """Drain a server that was ready, until a second signal; return the exit status."""
        self._gateway.drain()
        if child.was_ready:
            deadline_s = time.monotonic() + self._settings.drain_s
            if not self._drain(child, deadline_s, "shutting down"):
                _say("a second signal: ending at once")
                return 128 + self._signals[-1]
        return 0

    def _drain(self, child: ChildServer, deadline_s: float, reason: str) -> bool:
        """Refuse new requests and wait for the others; return False if another signal came.

        `deadline_s` is the time.monotonic() at which the others must have ended.
        """
        num_signals = len(self._signals)
        child.drain(deadline_s)
        while not child.is_drained() and not child.ended():
            self._report(is_ready=False, reason=reason)
            if len(self._signals) > num_signals:
                return False
            if child.look().fatal or time.monotonic() > deadline_s + STOP_GRACE_S / 2:
                break
            time.sleep(POLL_INTERVAL_S / 4)
        self._let_errors_out(child)
        return True

    def _let_requests_end(self, child: ChildServer, fault: _Fault) -> bool:
        """Let requests end before a restart; return False if a stop was requested.

        After a draft model's death they are drained; after other faults they get errors.
        """
        self._report(is_ready=False, reason=fault.text)
        if fault.is_draft:
            return self._drain(child, time.monotonic() + self._settings.drain_s, fault.text)
        if child.was_ready:
            self._let_errors_out(child)
        return True

    def _let_errors_out(self, child: ChildServer) -> None:
        """Wait until the orchestrator has sent errors to its clients, if it still can."""
        if not child.can_answer():
            return
        deadline_s = time.monotonic() + ANSWER_S
        while child.has_requests() and time.monotonic() < deadline_s:
            time.sleep(POLL_INTERVAL_S / 4)
        time.sleep(SETTLE_S)

    def _count_death(self, fault: str) -> int | None:
        """Count a death; return EXIT_GAVE_UP after too many, or None to start again."""
        self._deaths.append(time.monotonic())
        _forget_old(self._deaths)
        if len(self._deaths) >= MAX_DEATHS:
            _say(
                f"{fault}; that was death {len(self._deaths)} within {DEATH_WINDOW_S / 60:.0f} "
                "minutes: giving up"
            )
            return EXIT_GAVE_UP
        _say(f"{fault}; starting again (death {len(self._deaths)} of {MAX_DEATHS})")
        return None

    def _pause(self) -> bool:
        """Wait before a restart; return False if a stop was requested.

        The first restart in the window does not wait, the second waits FIRST_PAUSE_S, and each
        further one waits twice as long as the previous one.
        """
        deadline_s = 0.0
        if len(self._deaths) > 1:
            deadline_s = self._deaths[-1] + FIRST_PAUSE_S * 2 ** (len(self._deaths) - 2)
        while time.monotonic() < deadline_s and not self._should_stop():
            self._report(is_ready=False, reason="waiting before a restart")
            time.sleep(POLL_INTERVAL_S)
        return not self._should_stop()

    def _write_pid(self, pid: int) -> None:
        if self._pid_file is None:
            return
        new = self._pid_file.with_suffix(".new")
        try:
            new.write_text(str(pid), "utf-8")
            # The file is renamed, so that readers never see half a number.
            new.replace(self._pid_file)
        except OSError as error:
            _say(f"the process id could not be written: {error}")

    def _should_stop(self) -> bool:
        return bool(self._signals) or self._parent_pid not in {None, os.getppid()}

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)

    def _report(self, *, is_ready: bool, reason: str) -> None:
        self._endpoint.report(Health(is_ready, reason, time.monotonic()))


def _num_recent(times_s: deque[float]) -> int:
    """Return how many of the times are at most DEATH_WINDOW_S ago."""
    start_s = time.monotonic() - DEATH_WINDOW_S
    return sum(time_s >= start_s for time_s in times_s)


def _forget_old(times_s: deque[float]) -> None:
    """Drop times that are more than DEATH_WINDOW_S ago, the oldest first."""
    for _ in range(len(times_s) - _num_recent(times_s)):
        times_s.popleft()


def _reason_line(assessment: Assessment, *, is_ready: bool) -> str:
    if not is_ready:
        return assessment.fatal or assessment.waiting or "starting"
    return f"ready, without a draft: {assessment.degraded}" if assessment.degraded else "ready"


def _say(text: str) -> None:
    sys.stderr.write(f"specdec serve: {text}\n")
    sys.stderr.flush()
