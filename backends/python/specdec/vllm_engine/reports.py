"""Send a report of each step from vLLM's worker process to the model's process.

The worker sends a report before vLLM sends the tokens of the same step. So whoever reads a token
finds its round among the reports that have arrived. Sending never waits: if the reader has stopped,
reports are lost, and the next one says how many.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_BUFFER_BYTES = 4 * 2**20
"""Bytes of unread reports that the kernel keeps. A step with 256 requests has about 20 kB."""
_MAX_REPORT_BYTES = 2**20


class ReportSender:
    """The worker's end of the connection."""

    def __init__(self, address: str) -> None:
        """Connect to a ReportReader. Raises OSError if it has gone."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._socket.connect(f"\0{address}")
        self._num_lost = 0

    def send(self, report: dict[str, Any]) -> None:
        """Send a report, a JSON object without the key `num_lost`; never raises and never waits."""
        try:
            content = json.dumps({**report, "num_lost": self._num_lost}).encode()
            self._socket.send(content, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except (OSError, TypeError, ValueError):
            self._num_lost += 1
        else:
            self._num_lost = 0

    def close(self) -> None:
        self._socket.close()


class ReportReader:
    """The model's end of the connection; for one thread."""

    def __init__(self) -> None:
        """Listen in Linux's abstract namespace, which leaves nothing in the file system."""
        self.address = f"specdec-steps-{secrets.token_hex(12)}"
        """Address for ReportSender."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"\0{self.address}")
        self._listener.listen(1)
        self._listener.setblocking(False)
        self._connection: socket.socket | None = None

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield all reports that have arrived; never waits. `num_lost` counts those lost before."""
        if self._connection is None:
            with suppress(BlockingIOError):
                self._connection = self._listener.accept()[0]
        if self._connection is None:
            return
        with suppress(OSError):
            while content := self._connection.recv(_MAX_REPORT_BYTES, socket.MSG_DONTWAIT):
                yield json.loads(content)

    def close(self) -> None:
        self._listener.close()
        if self._connection is not None:
            self._connection.close()
