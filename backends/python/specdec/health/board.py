"""Heartbeats of model processes, each in a small file on the server's board.

The board is a directory in /dev/shm that all processes of a server share. The supervisor gives its
path in SPECDEC_BOARD. Without a supervisor, its name contains the process id of tritonserver, the
parent of every model process.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from specdec.health.processes import DIED, fault_of, status_of

BOARD_VARIABLE = "SPECDEC_BOARD"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the Python backend puts its regions
UNSUPERVISED_PREFIX = "specdec_board_"

_DRAIN_FILE = "drain"
_FORMAT = struct.Struct("=qqdqq")
"""Fields of a file: state, 1 while the loop works, time.monotonic() of the last beat, number of
tasks put into the loop's queue, number of tasks taken out of it."""
_STATE, _IS_WORKING, _BEAT, _QUEUED, _TAKEN = range(5)
"""Indices of the fields, each of eight bytes."""
_MAX_READS = 10
"""Most times to read a file again until two reads are equal; a reader must not see half of a
change."""


class State(IntEnum):
    """The state of a model process."""

    LOADING = 0
    SERVING = 1
    DRAINED = 2
    """State of an orchestrator after a stop: all requests are answered and all files written."""
    FAILED = 3
    """State after an engine's loop has ended by an error: the process answers no request."""


class Role(IntEnum):
    """The role of a model process."""

    ENGINE = 0
    ORCHESTRATOR = 1


@dataclass(frozen=True, slots=True)
class Beat:
    """The last heartbeat of one model process."""

    model: str
    pid: int
    start_ticks: int
    """Start of the process as in ProcessStatus; distinguishes it from later ones with its id."""
    role: Role
    needs: tuple[str, ...]
    """Models without which an orchestrator can answer no request."""
    state: State
    beat_s: float
    """time.monotonic() at which the loop last began a turn or the state last changed."""
    has_work: bool
    """Whether the loop works or tasks wait in its queue."""

    @property
    def process_fault(self) -> str:
        """The reason why the process cannot work, DIED or STOPPED; empty if it can."""
        return fault_of(self.pid, self.start_ticks)


def board_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the board of the server that this process belongs to."""
    named = environment.get(BOARD_VARIABLE, "")
    return Path(named) if named else SHARED_MEMORY / f"{UNSUPERVISED_PREFIX}{os.getppid()}"


class Heartbeat(Protocol):
    """The interface by which a loop reports that it lives; any thread may call any method."""

    def enter(self, state: State) -> None:
        """Report the state that the process now has."""

    def beat(self, *, is_working: bool) -> None:
        """Report that the loop begins a turn, and whether it will work or wait in it."""

    def task_queued(self) -> None:
        """Count a task that was put into the loop's queue; calls must not overlap."""

    def task_taken(self) -> None:
        """Count a task that the loop has taken out of its queue; calls must not overlap."""

    def close(self) -> None:
        """Report nothing from now on."""


class BoardHeartbeat:
    """The heartbeat of one process, written to a file on the board.

    Any thread may call any method. A report takes about a microsecond.
    """

    def __init__(
        self,
        model: str,
        role: Role = Role.ENGINE,
        needs: tuple[str, ...] = (),
        directory: Path | None = None,
    ) -> None:
        """Put the process on the board in state LOADING, and remove files of dead processes.

        `needs` are the models without which an orchestrator can answer no request. `directory` is
        the board, by default that of this process's server. Raise OSError if /dev/shm is full.
        """
        directory = directory or board_directory()
        directory.mkdir(mode=0o700, exist_ok=True)
        _remove_dead_boards(directory)
        _remove_dead_processes(directory, model)
        self._directory = directory
        own = status_of(os.getpid())
        process = f"{os.getpid()},{own.start_ticks if own else 0}"
        self._file = directory / f"{model},{process},{role.value},{'+'.join(needs)}"
        hidden = directory / f".{model},{process}"
        hidden.write_bytes(_FORMAT.pack(State.LOADING, 0, time.monotonic(), 0, 0))
        with hidden.open("r+b") as file:
            memory = memoryview(mmap.mmap(file.fileno(), _FORMAT.size))
        # Each field is written by one store of eight bytes; struct.pack_into writes zeros first.
        self._integers, self._times_s = memory.cast("q"), memory.cast("d")
        # The file gets its name only now, so that readers see complete files.
        hidden.rename(self._file)
        self._num_queued = self._num_taken = 0

    def enter(self, state: State) -> None:
        """Report the state that the process now has."""
        # While it loads, a process may be silent; afterwards silence counts from here.
        self._times_s[_BEAT] = time.monotonic()
        self._integers[_STATE] = state

    def beat(self, *, is_working: bool) -> None:
        """Report that the loop begins a turn, and whether it will work or wait in it."""
        # Write the time first: otherwise work that begins after a long wait looks like a hang.
        self._times_s[_BEAT] = time.monotonic()
        self._integers[_IS_WORKING] = is_working

    def task_queued(self) -> None:
        """Count a task that was put into the loop's queue; calls must not overlap."""
        self._num_queued += 1
        self._integers[_QUEUED] = self._num_queued

    def task_taken(self) -> None:
        """Count a task that the loop has taken out of its queue; calls must not overlap."""
        self._num_taken += 1
        self._integers[_TAKEN] = self._num_taken

    def close(self) -> None:
        """Remove the process from the board; the last process also removes the board."""
        self._file.unlink(missing_ok=True)
        with suppress(OSError):
            self._directory.rmdir()


class _NoHeartbeat:
    """The heartbeat of an engine that no server watches: it reports nothing."""

    def enter(self, state: State) -> None: ...

    def beat(self, *, is_working: bool) -> None: ...

    def task_queued(self) -> None: ...

    def task_taken(self) -> None: ...

    def close(self) -> None: ...


NO_HEARTBEAT: Heartbeat = _NoHeartbeat()


def read_board(directory: Path) -> list[Beat]:
    """Return the heartbeats on the board, sorted by model; none if there is no board yet."""
    beats = []
    with suppress(FileNotFoundError):
        for file in sorted(directory.iterdir()):
            parts = file.name.split(",")
            if len(parts) != 5:
                continue
            with suppress(FileNotFoundError, struct.error):
                state, is_working, beat_s, queued, taken = _FORMAT.unpack(_settled(file))
                beats.append(
                    Beat(
                        parts[0],
                        int(parts[1]),
                        int(parts[2]),
                        Role(int(parts[3])),
                        tuple(filter(None, parts[4].split("+"))),
                        State(state),
                        beat_s,
                        bool(is_working) or queued != taken,
                    )
                )
    return beats


def _settled(file: Path) -> bytes:
    """Return the content of a file that another process may be writing.

    The file is read until two reads are equal, but only _MAX_READS times more.
    """
    content = file.read_bytes()
    for _ in range(_MAX_READS):
        before, content = content, file.read_bytes()
        if before == content:
            break
    return content


def ask_to_drain(directory: Path, deadline_s: float) -> None:
    """Ask orchestrators to refuse new requests and to end by `deadline_s` (time.monotonic())."""
    directory.mkdir(mode=0o700, exist_ok=True)
    hidden = directory / f".{_DRAIN_FILE}"
    hidden.write_text(repr(deadline_s), "utf-8")
    hidden.rename(directory / _DRAIN_FILE)


def drain_deadline_s(directory: Path) -> float | None:
    """Return the time.monotonic() until which running requests may go on; None without a drain."""
    try:
        return float((directory / _DRAIN_FILE).read_text("utf-8"))
    except FileNotFoundError:
        return None


def _remove_dead_boards(own: Path) -> None:
    """Remove the boards of killed servers that had no supervisor, except `own`."""
    for board in SHARED_MEMORY.glob(f"{UNSUPERVISED_PREFIX}*"):
        pid = board.name.removeprefix(UNSUPERVISED_PREFIX)
        if board != own and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(board, ignore_errors=True)


def _remove_dead_processes(board: Path, model: str) -> None:
    """Remove the files of a model's dead processes, because the model is being loaded again."""
    for file in board.glob(f"{model},*,*,*,*"):
        _, pid, start_ticks, *_ = file.name.split(",")
        if fault_of(int(pid), int(start_ticks)) == DIED:
            file.unlink(missing_ok=True)
