"""Ask the kernel about processes: gone, stopped, and whose children they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DIED, STOPPED = "has died", "is stopped"
_MODEL_FILE = re.compile(r"/([^/]+)/\d+/model\.py$")


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A process as /proc/<pid>/stat shows it."""

    pid: int
    parent: int
    letter: str
    """R, S, D …; Z for one that has ended, T and t for one that is stopped."""
    start_ticks: int
    """When it started, in clock ticks since the machine did: another process that is given the
    same id later has a greater one."""

    @property
    def fault(self) -> str:
        """Why the process can do nothing; empty where it can."""
        return {"Z": DIED, "X": DIED, "T": STOPPED, "t": STOPPED}.get(self.letter, "")


def status_of(pid: int) -> ProcessStatus | None:
    """Return the status of a process, None if there is none of that id."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name may hold anything; then field 3, proc(5)
    return ProcessStatus(pid, int(fields[1]), fields[0], int(fields[19]))


def fault_of(pid: int, start_ticks: int | None = None) -> str:
    """Return why a process can do nothing, DIED or STOPPED; empty where it can.

    With `start_ticks` (ProcessStatus), a process that was given the id since does not count.
    """
    status = status_of(pid)
    if status is None or start_ticks not in {None, status.start_ticks}:
        return DIED
    return status.fault


def all_processes() -> Iterator[ProcessStatus]:
    """Return the status of every process that this one can see."""
    for path in Path("/proc").glob("[0-9]*"):
        status = status_of(int(path.name))
        if status is not None:
            yield status


def model_run_by(pid: int) -> str:
    """Return the model that a stub of Triton's Python backend runs; empty for other processes."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    names = (_MODEL_FILE.search(each.decode(errors="replace")) for each in arguments)
    return next((found[1] for found in names if found), "")


def environment_of(pid: int) -> list[str]:
    """Return the environment that a process was started with, NAME=value each; [] if unreadable."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
    return [entry.decode(errors="replace") for entry in entries]
