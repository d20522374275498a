"""Start a server and find out afterwards whether any process of it died, crashed or failed."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.reliability.crashes import CrashWatch
from specdec.serving.triton_server import TritonServer

_BAD_LINE = re.compile(
    r"Traceback \(most recent|Signal \(\d+\)|free\(\)|malloc|corrupted|terminate called"
)
"""Log lines of an unexpected failure: Python's, Triton's signal handler, glibc's checks, C++."""


class WatchedServer:
    """A running server, and what went wrong in it since its start."""

    def __init__(self, server: TritonServer, folder: Path) -> None:
        self.server = server
        self._crashes = CrashWatch(folder)
        self._pid = server.pid

    def faults(self) -> list[str]:
        """Return crashes, restarts and bad lines of the log since the start, a line each."""
        found = self._crashes.found()
        if self.server.pid != self._pid:
            found.append("tritonserver was restarted")
        log = self.server.log_path.read_text("utf-8", "replace").splitlines()
        return found + [line[:200] for line in log if _BAD_LINE.search(line)]


@contextmanager
def watched_server(repository: Path) -> Iterator[WatchedServer]:
    """Serve the repository in a folder of its own, where core files would be written."""
    with (
        tempfile.TemporaryDirectory() as folder,
        TritonServer(repository, working_directory=Path(folder)) as server,
    ):
        yield WatchedServer(server, Path(folder))


def described(faults: list[str]) -> str:
    """Return the faults as a figure of the table says them."""
    return f"crashes, restarts, tracebacks: {len(faults)}" + "".join(
        f" ({each})" for each in sorted(set(faults))
    )
