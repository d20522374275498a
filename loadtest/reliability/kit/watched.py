"""Start a server and find out afterwards whether one of its processes died, crashed or failed."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from specdec.launch.triton_server import TritonServer
from specdec.loadtest.reliability.kit.crashes import CrashWatch
from specdec.loadtest.reliability.kit.resources import settled
from specdec.loadtest.reliability.kit.table import listed

NOTICE_S = 3.0
"""Seconds with nothing in flight in which the supervisor reports a death.

It notices a death within 2 s, and replaces a dead draft engine once nothing is in flight.
"""
_BAD_LINE = re.compile(
    r"Traceback \(most recent|Signal \(\d+\)|free\(\)|malloc|corrupted|terminate called"
    r"|starting again|giving up|requests in flight get an error|Failed to process the request"
)
"""Log lines of an unexpected failure.

They come from Python, Triton's signal handler, glibc's checks and C++, from a death that supervisor
or orchestrator noticed, and from an exception that left a model.
"""


class WatchedServer:
    """A running server, and everything that went wrong in it since its start."""

    def __init__(self, server: TritonServer, folder: Path) -> None:
        self.server = server
        self._crashes = CrashWatch(folder)
        self._pid = server.pid
        self._known: Counter[str] = Counter()
        """Crashes and bad lines that `faults` has returned already."""

    def faults(self) -> list[str]:
        """Return crashes, restarts and bad lines of the log since the last call, a line each.

        Waits first until nothing is in flight, and NOTICE_S more.
        """
        with suppress(TimeoutError):
            asyncio.run(settled(self.server))
        time.sleep(NOTICE_S)
        log = self.server.log_path.read_text("utf-8", "replace")
        found = Counter([*self._crashes.found(), *bad_lines(log)])
        new, self._known = found - self._known, found
        return [*new.elements(), *self._restarts()]

    def _restarts(self) -> list[str]:
        try:
            known, self._pid = self._pid, self.server.pid
        except (OSError, ValueError):  # The supervisor removes the file at its end.
            return ["the server has given up"]
        return ["tritonserver was restarted"] if self._pid != known else []


def bad_lines(log: str) -> list[str]:
    """Return the lines of a server's log that tell of an unexpected failure, each cut short."""
    return [line[:200] for line in log.splitlines() if _BAD_LINE.search(line)]


@contextmanager
def watched_server(repository: Path, *, has_openai: bool = False) -> Iterator[WatchedServer]:
    """Serve the repository in a folder of its own, where core files would be written.

    With `has_openai` the gateway runs too.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        TritonServer(repository, working_directory=Path(folder), has_openai=has_openai) as server,
    ):
        yield WatchedServer(server, Path(folder))


def described(faults: Sequence[str]) -> str:
    """Return the faults as text for the table's column of figures."""
    return f"crashes, restarts, tracebacks: {len(faults)}{listed(faults)}"
