"""Run tritonserver, restart it when a process of it dies or hangs, and stop it in good order."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from specdec.health.endpoint import Health, HealthEndpoint
from specdec.serving.child_server import ChildServer, remove_leftovers
from specdec.serving.installation import LaunchError

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from specdec.health.assessment import Assessment
    from specdec.serving.server_command import ServeSettings

POLL_INTERVAL_S = 0.1
STOP_GRACE_S = 5.0
"""Seconds after the drain limit within which everything has ended."""
ANSWER_S = 1.0
"""Seconds that orchestrators have to tell clients of a dead engine before the restart."""
SETTLE_S = 0.3
"""Seconds that Triton has to write an orchestrator's last response to the connection."""
MAX_DEATHS, DEATH_WINDOW_S = 5, 600.0
"""Deaths within a window of this many seconds at which the supervisor gives up."""
FIRST_PAUSE_S = 1.0
"""Seconds before the second restart; each further one waits twice as long."""
EXIT_GAVE_UP = 70
"""EX_SOFTWARE of sysexits.h: the server died too often."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def serve(
    settings: ServeSettings, *, parent_pid: int | None = None, pid_file: Path | None = None
) -> int:
    """Run tritonserver until a signal, a start that fails, or too many deaths; return the status.

    The status is 0 after a stop in good order, EXIT_GAVE_UP after too many deaths, 128 + n when a
    second signal n ended it at once, and tritonserver's own if it never became ready. SIGINT,
    SIGTERM and SIGHUP drain. With `parent_pid` the server also stops when that process is no longer
    our parent. `pid_file` receives tritonserver's process id, again at each restart.
    Raises LaunchError if there is no tritonserver or the health port is taken.
    """
    return _Supervisor(settings, parent_pid, pid_file).run()


class _Supervisor:
    """State of one `specdec serve`; everything but the health endpoint runs on the main thread."""

    def __init__(
        self, settings: ServeSettings, parent_pid: int | None, pid_file: Path | None
    ) -> None:
        self._settings = settings
        self._parent_pid = parent_pid
        self._pid_file = pid_file
        self._signals: list[int] = []
        self._deaths: deque[float] = deque()
        self._was_ready = False
        # Before the first child: a signal during the start must not leave a server behind.
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        try:
            self._endpoint = HealthEndpoint(settings.address, settings.health_port)
        except OSError as error:
            raise LaunchError(
                f"cannot listen on health port {settings.health_port}: {error}"
            ) from error

    def run(self) -> int:
        """Serve; see `serve`."""
        for leftover in remove_leftovers():
            _say(f"removed what a killed server left: {leftover}")
        try:
            while True:
                status = self._run_once()
                if status is not None:
                    return status
                if not self._pause():
                    return 0
        finally:
            self._endpoint.close()
            if self._pid_file is not None:
                self._pid_file.unlink(missing_ok=True)

    def _run_once(self) -> int | None:
        """Run one tritonserver to its end; return the exit status, None to start another."""
        self._report(is_ready=False, reason="starting")
        child = ChildServer(self._settings)
        try:
            if self._pid_file is not None:
                self._pid_file.write_text(str(child.pid), "utf-8")
            fault = self._watch(child)
            if not fault:
                return self._stop(child)
            self._was_ready |= child.was_ready
            self._report(is_ready=False, reason=fault)
            if child.was_ready and not child.ended():
                self._let_answer(child)
        finally:
            status = child.end()
        if not self._was_ready:
            return status or 1
        return self._count_death(fault)

    def _watch(self, child: ChildServer) -> str:
        """Watch until the server has a fault (returned) or is asked to stop (returns "")."""
        while not self._should_stop():
            if child.ended():
                return "tritonserver has ended by itself"
            assessment = child.look()
            if assessment.fatal:
                return assessment.fatal
            if assessment.degraded and child.was_ready and not child.has_requests():
                return f"{assessment.degraded}; nothing is in flight"
            is_ready = child.was_ready and assessment.is_ready
            self._report(is_ready=is_ready, reason=_line(assessment, is_ready=is_ready))
            time.sleep(POLL_INTERVAL_S)
        return ""

    def _stop(self, child: ChildServer) -> int:
        """Drain, then end; a second signal ends at once."""
        num_signals, start_s = len(self._signals), time.monotonic()
        deadline_s = start_s + self._settings.drain_s
        self._report(is_ready=False, reason="shutting down")
        if child.was_ready:
            child.drain(deadline_s)
            while not child.is_drained() and not child.ended():
                self._report(is_ready=False, reason="shutting down")
                if len(self._signals) > num_signals:
                    _say("a second signal: ending at once")
                    return 128 + self._signals[-1]
                if child.look().fatal or time.monotonic() > deadline_s + STOP_GRACE_S / 2:
                    break
                time.sleep(POLL_INTERVAL_S / 4)
            time.sleep(SETTLE_S)
        return 0

    def _let_answer(self, child: ChildServer) -> None:
        """Wait until the orchestrator has told its clients, if it lives."""
        deadline_s = time.monotonic() + ANSWER_S
        while child.has_requests() and time.monotonic() < deadline_s:
            time.sleep(POLL_INTERVAL_S / 4)
        time.sleep(SETTLE_S)

    def _count_death(self, fault: str) -> int | None:
        now_s = time.monotonic()
        self._deaths.append(now_s)
        while self._deaths[0] < now_s - DEATH_WINDOW_S:
            self._deaths.popleft()
        if len(self._deaths) >= MAX_DEATHS:
            _say(
                f"{fault}; that was death {len(self._deaths)} within {DEATH_WINDOW_S / 60:.0f} "
                "minutes: giving up"
            )
            return EXIT_GAVE_UP
        _say(f"{fault}; starting again (death {len(self._deaths)} of {MAX_DEATHS})")
        return None

    def _pause(self) -> bool:
        """Wait before a restart, twice as long each time; return False if asked to stop instead."""
        num_deaths = len(self._deaths)
        pause_s = 0.0 if num_deaths < 2 else FIRST_PAUSE_S * 2 ** (num_deaths - 2)
        deadline_s = time.monotonic() + pause_s
        while time.monotonic() < deadline_s and not self._should_stop():
            self._report(is_ready=False, reason="waiting before a restart")
            time.sleep(POLL_INTERVAL_S)
        return not self._should_stop()

    def _should_stop(self) -> bool:
        return bool(self._signals) or self._parent_pid not in {None, os.getppid()}

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)

    def _report(self, *, is_ready: bool, reason: str) -> None:
        self._endpoint.report(Health(is_ready, reason, time.monotonic()))


def _line(assessment: Assessment, *, is_ready: bool) -> str:
    if not is_ready:
        return assessment.fatal or assessment.waiting or "starting"
    return f"ready, without a draft: {assessment.degraded}" if assessment.degraded else "ready"


def _say(text: str) -> None:
    sys.stderr.write(f"specdec serve: {text}\n")
    sys.stderr.flush()
