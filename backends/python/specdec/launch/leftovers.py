"""End the processes and remove the files that a server, stopped or killed, has left."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from specdec.health.board import BOARD_VARIABLE, SHARED_MEMORY
from specdec.health.processes import DIED, all_processes, environment_of, fault_of
from specdec.launch.server_command import REGION_PREFIX

RUN_PREFIX = "specdec-run-"
"""Start of the name of a run directory; the supervisor's process id follows."""
BOARD_SUFFIX = "board"
"""End of the name of a supervised server's board in /dev/shm."""
KILL_S = 2.0
"""Seconds to wait for killed processes to die."""
_TRACKER = b"multiprocessing.resource_tracker"
"""In the command of the process with which Python's multiprocessing removes shared memory, after
all processes that used it have died. vLLM's processes share up to 160 MB."""
_OPENMP_FILE = "__KMP_REGISTERED_LIB_{}_*"
"""Name of the file in shared memory that a process with Intel's OpenMP has, by process id."""


def processes_of(board: Path) -> list[int]:
    """Return the ids of all processes that were started with this board, and of their children."""
    variable = f"{BOARD_VARIABLE}={board}"
    everything = sorted(all_processes(), key=lambda each: each.start_ticks)
    found: dict[int, None] = {}
    # A process may overwrite its environment with its title, as vLLM's do.
    for each in everything:
        if each.parent in found or variable in environment_of(each.pid):
            found[each.pid] = None
    return list(found)


def kill_processes_of(board: Path) -> list[int]:
    """Kill every process of `processes_of`, and return their ids.

    Returns when they have died, or after KILL_S. The shared memory of their libraries is removed.
    """
    processes = processes_of(board)
    trackers = [pid for pid in processes if _TRACKER in _command_of(pid)]
    killed = _killed(pid for pid in processes if pid not in trackers)
    _wait_for_deaths(trackers)
    killed += _killed(pid for pid in trackers if fault_of(pid) != DIED)
    for pid in killed:
        for file in SHARED_MEMORY.glob(_OPENMP_FILE.format(pid)):
            file.unlink(missing_ok=True)
    return killed


def _killed(processes: Iterable[int]) -> list[int]:
    """Kill processes, and return their ids once they have died, or after KILL_S."""
    killed = []
    for pid in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    # Until they have died, they hold ports and GPU memory.
    _wait_for_deaths(killed)
    return killed


def _wait_for_deaths(processes: Sequence[int]) -> None:
    deadline_s = time.monotonic() + KILL_S
    while any(fault_of(pid) != DIED for pid in processes) and time.monotonic() < deadline_s:
        time.sleep(0.01)


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def remove_shared_memory(prefix: str) -> list[str]:
    """Remove regions and boards whose name starts with `prefix`; return the names removed."""
    removed = []
    for region in SHARED_MEMORY.glob(f"{prefix}*"):
        if region.is_dir():
            shutil.rmtree(region, ignore_errors=True)
        else:
            region.unlink(missing_ok=True)
        removed.append(region.name)
    return sorted(removed)


def remove_leftovers() -> list[str]:
    """End the processes and remove the files that this user's killed supervisors have left.

    Returns their names for a message, such as `process 4711`.
    """
    found, killed = [], []
    for region in SHARED_MEMORY.glob(f"{REGION_PREFIX}[0-9]*_*"):
        if not _is_leftover(region, region.name.removeprefix(REGION_PREFIX).partition("_")[0]):
            continue
        if region.name.endswith(BOARD_SUFFIX):
            killed += kill_processes_of(region)
        found += remove_shared_memory(region.name)
    for directory in Path(tempfile.gettempdir()).glob(f"{RUN_PREFIX}*"):
        if _is_leftover(directory, directory.name.removeprefix(RUN_PREFIX).partition("-")[0]):
            shutil.rmtree(directory, ignore_errors=True)
            found.append(str(directory))
    return [*(f"process {pid}" for pid in killed), *found]


def _is_leftover(file: Path, supervisor: str) -> bool:
    """Say whether a file may be removed: we may write it, and its supervisor runs no longer.

    `supervisor` is a process id. If it is our own, the file is that of an earlier supervisor,
    because this runs before our first child is started. In a container each supervisor is process
    1, and a pod's /dev/shm outlives the container.
    """
    is_running = supervisor != str(os.getpid()) and Path(f"/proc/{supervisor}").exists()
    return supervisor.isdigit() and not is_running and os.access(file, os.W_OK)
