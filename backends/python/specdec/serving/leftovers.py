"""End processes and remove files that a server has left, its own or those of a killed one."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from specdec.health.board import BOARD_VARIABLE, SHARED_MEMORY
from specdec.health.processes import DIED, all_processes, environment_of, fault_of
from specdec.serving.server_command import REGION_PREFIX

RUN_PREFIX = "specdec-run-"
BOARD_SUFFIX = "board"
KILL_S = 2.0
"""Seconds that a killed process may take to die."""


def kill_processes_of(board: Path) -> list[int]:
    """Kill every process that was started with this board, and wait; return their ids."""
    killed = []
    for process in all_processes():
        if f"{BOARD_VARIABLE}={board}" in environment_of(process.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
                killed.append(process.pid)
    deadline_s = time.monotonic() + KILL_S
    while any(fault_of(pid) != DIED for pid in killed) and time.monotonic() < deadline_s:
        time.sleep(0.01)  # They hold ports and the GPU's memory until they have died.
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
    """End processes and remove files of killed supervisors of this user; return them in words."""
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
    """Say whether a file is ours to remove: its supervisor (a process id) does not run any more.

    Our own id on something that was here before our first child is an earlier supervisor's: in a
    container each is process 1, and a pod's /dev/shm outlives the container.
    """
    is_running = supervisor != str(os.getpid()) and Path(f"/proc/{supervisor}").exists()
    return supervisor.isdigit() and not is_running and os.access(file, os.W_OK)
