"""Run tritonserver as a child that outlives nobody and leaves nothing behind."""

from __future__ import annotations

import ctypes
import math
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from specdec.serving.installation import (
    assemble_backend_directory,
    find_installation,
    server_environment,
)
from specdec.serving.server_command import server_command
from specdec.serving.tracing import ENDPOINT_VARIABLE

if TYPE_CHECKING:
    from types import FrameType

    from specdec.serving.server_command import ServeSettings

POLL_INTERVAL_S = 0.1
# tritonserver was seen to take 30 s to stop after one of its stubs had crashed.
KILL_GRACE_S = 35
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the Python backend puts its regions
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def serve(
    settings: ServeSettings, *, parent_pid: int | None = None, pid_file: Path | None = None
) -> int:
    """Run tritonserver until it ends; return its exit status (128 + n if signal n ended it).

    SIGINT, SIGTERM and SIGHUP are forwarded; a second one kills. With `parent_pid` the server also
    stops when that process is no longer our parent. `pid_file` receives the server's process id.
    The run directory and the server's shared-memory regions are removed at the end.
    Raises LaunchError if there is no tritonserver. Call it from a single-threaded process.
    """
    installation = find_installation()
    shm_prefix = f"specdec_{os.getpid()}_{secrets.token_hex(3)}_"
    run_directory = Path(tempfile.mkdtemp(prefix="specdec-run-"))
    try:
        backend_directory = None
        if installation.wheel_directory is not None:
            backend_directory = assemble_backend_directory(installation, run_directory)
        command = server_command(settings, installation, backend_directory, shm_prefix)
        environment = server_environment(installation)
        if settings.trace_url:
            environment[ENDPOINT_VARIABLE] = settings.trace_url
        child = _ChildServer(command, environment, settings.exit_timeout_s)
        if pid_file is not None:
            pid_file.write_text(str(child.process.pid), "utf-8")
        return child.wait(parent_pid)
    finally:
        if pid_file is not None:
            pid_file.unlink(missing_ok=True)
        shutil.rmtree(run_directory, ignore_errors=True)
        remove_shared_memory(shm_prefix)


def remove_shared_memory(prefix: str) -> list[str]:
    """Remove the regions whose name starts with `prefix`; return the names of those removed."""
    removed = []
    for region in SHARED_MEMORY.glob(f"{prefix}*"):
        with suppress(FileNotFoundError):
            region.unlink()
            removed.append(region.name)
    return removed


@dataclass(slots=True)
class _ChildServer:
    """The tritonserver process, leader of a process group of its own."""

    command: list[str]
    environment: dict[str, str]
    exit_timeout_s: int
    process: subprocess.Popen[bytes] = field(init=False)
    stop_deadline_s: float | None = None

    def __post_init__(self) -> None:
        # Handlers first: a signal during the start must not leave a server behind.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        mask = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        signal.pthread_sigmask(signal.SIG_BLOCK, mask)
        try:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches us alone, and we pass it on once
                preexec_fn=_prepare_child,  # noqa: PLW1509 - this process has one thread
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, mask)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.stop_deadline_s is None:
            self._request_stop(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
        else:
            self._kill_group()

    def _request_stop(self, number: signal.Signals) -> None:
        self.stop_deadline_s = time.monotonic() + self.exit_timeout_s + KILL_GRACE_S
        self.process.send_signal(number)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait(self, parent_pid: int | None) -> int:
        """Wait for the end, then end what is left of its process group; return the status."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, self.process.pid, options) is None:
            now_s = time.monotonic()
            if self.stop_deadline_s is not None and now_s > self.stop_deadline_s:
                sys.stderr.write("specdec serve: the server does not stop, killing it\n")
                self._kill_group()
                self.stop_deadline_s = math.inf
            if self.stop_deadline_s is None and parent_pid not in {None, os.getppid()}:
                self._request_stop(signal.SIGTERM)
            time.sleep(POLL_INTERVAL_S)
        # Not yet reaped, so the group's number cannot have been given to others.
        self._kill_group()
        returncode = self.process.wait()
        return returncode if returncode >= 0 else 128 - returncode


def _prepare_child() -> None:
    """In the child: signals as usual, and a SIGTERM from the kernel should its parent be killed."""
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
