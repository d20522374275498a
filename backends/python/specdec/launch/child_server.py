"""Start, watch and end one tritonserver with its model processes."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specdec.health.assessment import HANG_VARIABLE, Assessment, Watch
from specdec.health.board import (
    BOARD_VARIABLE,
    SHARED_MEMORY,
    Beat,
    Role,
    State,
    ask_to_drain,
    read_board,
)
from specdec.health.processes import (
    DIED,
    all_processes,
    fault_of,
    model_run_by,
)
from specdec.health.triton_probe import TritonProbe
from specdec.launch.installation import (
    assemble_backend_directory,
    find_installation,
    server_environment,
)
from specdec.launch.leftovers import (
    BOARD_SUFFIX,
    RUN_PREFIX,
    kill_processes_of,
    remove_shared_memory,
)
from specdec.launch.server_command import (
    REGION_PREFIX,
    SHM_PREFIX_VARIABLE,
    launch_command,
    server_command,
)
from specdec.settings.tracing import ENDPOINT_VARIABLE

if TYPE_CHECKING:
    from specdec.launch.server_command import ServeSettings

SCAN_PERIOD_S = 0.5
"""Seconds between two scans of the machine's processes; a scan takes about a millisecond."""
COLLECTED_S = 1.0
"""Seconds after which a dead model process that wrote no heartbeats counts as a fault. Processes
that Triton ends itself disappear within milliseconds."""
CONNECT_S = 0.5
"""Seconds to wait for a server on this machine to accept a connection."""

# This program asks the kernel to kill it when the supervisor dies, and then becomes tritonserver.
# It needs a process with one thread, and the supervisor has several. The comparison of process ids
# notices a supervisor that has died already.
_EXEC_TIED_TO_PARENT = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n"  # PR_SET_PDEATHSIG
    "os.getppid() == int(sys.argv[1]) or sys.exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


class ChildServer:
    """A running tritonserver and its model processes, in one process group.

    The names of its files and shared memory contain the supervisor's process id. So the next start
    can remove those that a killed supervisor left (`remove_leftovers`).
    """

    def __init__(self, settings: ServeSettings) -> None:
        """Start tritonserver.

        Raises LaunchError if there is no usable tritonserver or no usable admin key, and OSError if
        the process cannot be started.
        """
        self._settings = settings
        self.shm_prefix = f"{REGION_PREFIX}{os.getpid()}_{secrets.token_hex(3)}_"
        self.board = SHARED_MEMORY / f"{self.shm_prefix}{BOARD_SUFFIX}"
        self._run_directory = Path(tempfile.mkdtemp(prefix=f"{RUN_PREFIX}{os.getpid()}-"))
        try:
            self._process = self._start()
        except BaseException:
            self._remove_files()
            raise
        host = settings.reachable_host
        self._probe = TritonProbe(host, settings.http_port) if settings.has_http else None
        self._watch = Watch(settings.hang_s)
        self._was_complete = False
        self._scanned_s = 0.0
        self._unheard_models: dict[int, str] = {}
        """Names of models whose processes write no heartbeats, by process id."""
        self._unheard_faults: dict[int, tuple[float, str]] = {}
        """Faults of these processes by process id: DIED or STOPPED, after the time.monotonic() at
        which the process was first found so."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def was_ready(self) -> bool:
        """Whether all models have been ready at least once."""
        return self._was_complete

    def ended(self) -> bool:
        """Say whether tritonserver has ended.

        An ended process is not reaped before `end`, so that no other process gets its id.
        """
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def look(self) -> Assessment:
        """Assess tritonserver and its model processes as they are now."""
        self._watch.look()
        assessment = self._watch.assess(self.beats(), self._other_faults())
        if fault := self._watch.process_fault(self.pid):
            return Assessment(f"tritonserver {fault}", "", "")
        if self._probe is None:
            if assessment.is_ready and not self._was_complete:
                self._was_complete = self._has_loaded()
            is_loading = not (assessment.fatal or self._was_complete)
            return (
                replace(assessment, waiting=assessment.waiting or "loading")
                if is_loading
                else assessment
            )
        silent_s = self._watch.silent_s(self._probe.answered_s)
        if self._probe.was_ready and silent_s > self._settings.hang_s:
            return Assessment(f"tritonserver hangs: no answer for {silent_s:.1f} s", "", "")
        if self._probe.is_ready:
            self._was_complete = True
        elif assessment.is_ready:
            return Assessment("", assessment.degraded, "tritonserver is not ready")
        return assessment

    def beats(self) -> list[Beat]:
        """Return the last heartbeat of each model process."""
        return read_board(self.board)

    def drain(self, deadline_s: float) -> None:
        """Ask the server to refuse new requests and to end those in flight.

        Orchestrators end them by `deadline_s` (time.monotonic()). Without an orchestrator, Triton
        itself refuses new requests and waits for those in flight.
        """
        if self._has_orchestrator():
            ask_to_drain(self.board, deadline_s)
        else:
            # Popen.send_signal would reap an ended process, and another could get its id.
            os.kill(self._process.pid, signal.SIGTERM)

    def is_drained(self) -> bool:
        """Say whether all orchestrators have answered their requests and written their files.

        Engines do not count, because a dead or hung engine would never be drained. Without an
        orchestrator the result is False, and Triton ends by itself.
        """
        return self._has_orchestrator() and all(
            each.state is State.DRAINED and not each.has_work
            for each in self.beats()
            if each.role is Role.ORCHESTRATOR
        )

    def can_answer(self) -> bool:
        """Say whether tritonserver and an orchestrator run, so that clients can get errors."""
        return not fault_of(self.pid) and any(
            each.role is Role.ORCHESTRATOR and not each.process_fault for each in self.beats()
        )

    def has_requests(self) -> bool:
        """Say whether an orchestrator that still runs has requests."""
        return any(
            each.role is Role.ORCHESTRATOR and each.has_work and not each.process_fault
            for each in self.beats()
        )

    def end(self) -> int:
        """Kill the process group, remove its files, and return tritonserver's exit status.

        The status is 128 + n if signal n ended tritonserver. SIGKILL is used because the
        destructors of Triton 2.51 and its Python backend sometimes crash. Nothing depends on them:
        a drain writes the state files, and the kernel closes the connections.
        """
        if self._probe is not None:
            self._probe.close()
        # First, because some processes of the group clean up once the others have died. Also mpirun
        # puts its processes into groups of their own.
        kill_processes_of(self.board)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        returncode = self._process.wait()
        self._remove_files()
        return returncode if returncode >= 0 else 128 - returncode

    def _has_loaded(self) -> bool:
        """Say whether the gRPC port is open. Triton opens its ports once all models are loaded."""
        address = self._settings.reachable_host, self._settings.grpc_port
        with suppress(OSError), socket.create_connection(address, CONNECT_S):
            return True
        return False

    def _has_orchestrator(self) -> bool:
        return any(each.role is Role.ORCHESTRATOR for each in self.beats())

    def _start(self) -> subprocess.Popen[bytes]:
        settings, installation = self._settings, find_installation()
        backend_directory = None
        if installation.wheel_directory is not None:
            backend_directory = assemble_backend_directory(installation, self._run_directory)
        command = (
            launch_command(settings)
            if settings.launch_script is not None
            else server_command(settings, installation, backend_directory, self.shm_prefix)
        )
        environment = server_environment(installation)
        environment[BOARD_VARIABLE] = str(self.board)
        environment[HANG_VARIABLE] = str(settings.hang_s)
        environment[SHM_PREFIX_VARIABLE] = self.shm_prefix
        if settings.trace_url:
            environment[ENDPOINT_VARIABLE] = settings.trace_url
        return subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _EXEC_TIED_TO_PARENT, str(os.getpid()), *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            # Ctrl-C must reach only the supervisor.
            start_new_session=True,
        )

    def _other_faults(self) -> dict[str, str]:
        """Return faults by model, for processes without heartbeats, such as vLLM's."""
        now_s = time.monotonic()
        if now_s - self._scanned_s > SCAN_PERIOD_S:
            self._scanned_s = now_s
            on_board = {each.pid for each in self.beats()}
            faults: dict[int, tuple[float, str]] = {}
            for each in all_processes():
                if each.parent != self.pid or each.pid in on_board:
                    continue
                if model := model_run_by(each.pid):
                    self._unheard_models[each.pid] = model
                if each.pid in self._unheard_models:
                    since_s, _ = self._unheard_faults.get(each.pid, (now_s, ""))
                    faults[each.pid] = since_s, self._watch.process_fault(each.pid)
            self._unheard_faults = {pid: each for pid, each in faults.items() if each[1]}
        return {
            self._unheard_models[pid]: f"the process of {self._unheard_models[pid]} {fault}"
            for pid, (since_s, fault) in self._unheard_faults.items()
            if fault != DIED or now_s - since_s > COLLECTED_S
        }

    def _remove_files(self) -> None:
        shutil.rmtree(self._run_directory, ignore_errors=True)
        remove_shared_memory(self.shm_prefix)
