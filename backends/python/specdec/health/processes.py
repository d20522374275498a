"""Ask the kernel about processes: whether they died or are stopped, and how they were started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DIED, STOPPED = "has died", "is stopped"
_MODEL_FILE = re.compile(r"/([^/]+)/\d+/model\.py$")
"""Path of a Python model's file; the group is the model's name."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A process as /proc/<pid>/stat shows it."""

    pid: int
    parent: int
    letter: str
    """State: R, S, D …; Z or X after the end, T or t while the process is stopped."""
    start_ticks: int
    """Start in clock ticks since the machine's boot. A later process with the same id has a greater
    number."""

    @property
    def fault(self) -> str:
        """The reason why the process cannot work, DIED or STOPPED; empty if it can."""
        return {"Z": DIED, "X": DIED, "T": STOPPED, "t": STOPPED}.get(self.letter, "")


def status_of(pid: int) -> ProcessStatus | None:
    """Return the status of a process; None if there is none with this id."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The name in parentheses may contain anything, so read from field 3 of proc(5), after it.
    fields = text.rpartition(")")[2].split()
    return ProcessStatus(pid, int(fields[1]), fields[0], int(fields[19]))


def fault_of(pid: int, start_ticks: int | None = None) -> str:
    """Return why a process cannot work, DIED or STOPPED; empty if it can.

    With `start_ticks` (ProcessStatus), a later process with the same id counts as DIED.
    """
    status = status_of(pid)
    if status is None or start_ticks not in {None, status.start_ticks}:
        return DIED
    return status.fault


def all_processes() -> Iterator[ProcessStatus]:
    """Yield the status of every process that this one can see."""
    for path in Path("/proc").glob("[0-9]*"):
        status = status_of(int(path.name))
        if status is not None:
            yield status


def model_run_by(pid: int) -> str:
    """Return the model that a process runs as a stub of Triton's Python backend; empty for none."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    names = (_MODEL_FILE.search(each.decode(errors="replace")) for each in arguments)
    return next((found[1] for found in names if found), "")


def environment_of(pid: int) -> list[str]:
    """Return the environment with which a process was started, as NAME=value; [] if unreadable."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
    return [entry.decode(errors="replace") for entry in entries]
