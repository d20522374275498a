"""End the processes and remove the files that a server, stopped or killed, has left."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable
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
LIBRARY_PREFIXES = ("psm_", "sem.mp-", "__KMP_REGISTERED_LIB_")
"""Starts of the names that libraries in model processes choose in /dev/shm: Python's
multiprocessing, with which vLLM's processes exchange up to 160 MB, and Intel's OpenMP. Killed
processes leave these files."""


def processes_of(board: Path) -> list[int]:
    """Return the ids of all processes that were started with this board."""
    variable = f"{BOARD_VARIABLE}={board}"
    return [each.pid for each in all_processes() if variable in environment_of(each.pid)]


def library_memory_of(processes: Iterable[int]) -> set[Path]:
    """Return the files in shared memory that libraries have made in these processes."""
    found = set()
    for pid in processes:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text("utf-8").splitlines():
                file = Path(line.partition("/")[1] + line.partition("/")[2])
                if file.parent == SHARED_MEMORY and file.name.startswith(LIBRARY_PREFIXES):
                    found.add(file)
    return found


def kill_processes_of(board: Path) -> list[int]:
    """Kill every process that was started with this board, and return their ids.

    Returns when they have died, or after KILL_S. Removes their libraries' shared memory.
    """
    processes = processes_of(board)
    memory = library_memory_of(processes)
    killed = []
    for pid in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    deadline_s = time.monotonic() + KILL_S
    # Until they have died, they hold ports and GPU memory.
    while any(fault_of(pid) != DIED for pid in killed) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    for file in memory:
        file.unlink(missing_ok=True)
    return killed


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
