"""Bring a report of each step from our drafters to the answers.

A report is sent before the engine hands out the tokens that it is about. So the reader of a token
finds its record among the reports that have arrived. Drafters in another process send their reports
over a local socket. Sending never waits: if the reader has stopped, reports are lost, and the next
one says how many.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from specdec.round_records import DraftRecord, RoundRecord

_BUFFER_BYTES = 4 * 2**20
"""Bytes of unread reports that the kernel is asked to keep; it may keep fewer. A step with 256
requests has about 20 kB."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """The report on one step of the engine, for the answers."""

    records: Mapping[str, RoundRecord | DraftRecord] = field(default_factory=dict)
    """For each request, the round that the step confirmed or the draft that the next one
    verifies."""
    tasks: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """The controller's reports by task."""
    failures: Sequence[tuple[str, str]] = ()
    """Drafter and `error_type` of each failure."""
    num_lost: int = 0
    """Reports that were lost before this one."""


class Reports(Protocol):
    """The interface by which the answers read reports."""

    def read(self) -> Iterator[StepReport]:
        """Yield all reports that have arrived; never waits."""


class LocalReports:
    """Reports within one process; one thread sends, and another reads."""

    def __init__(self) -> None:
        self._reports: SimpleQueue[StepReport] = SimpleQueue()

    def send(self, report: StepReport) -> None:
        """Send a report."""
        self._reports.put(report)

    def read(self) -> Iterator[StepReport]:
        """Yield all reports that have arrived; never waits."""
        with suppress(Empty):
            while True:
                yield self._reports.get_nowait()


class ReportSender:
    """Sends reports from the worker's process."""

    def __init__(self, address: str) -> None:
        """Connect to a ReportReader. Raises OSError if it has gone."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._socket.connect(f"\0{address}")
        self._num_lost = 0

    def send(self, report: StepReport) -> None:
        """Send a report whose records are rounds; never raises and never waits."""
        try:
            content = _to_json(report, self._num_lost).encode()
            self._socket.send(content, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except (OSError, TypeError, ValueError):
            self._num_lost += 1
        else:
            self._num_lost = 0

    def close(self) -> None:
        self._socket.close()


class ReportReader:
    """Receives reports in the model's process; for one thread."""

    def __init__(self) -> None:
        """Listen in Linux's abstract namespace, which leaves nothing in the file system."""
        self.address = f"specdec-steps-{secrets.token_hex(12)}"
        """Address for ReportSender."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"\0{self.address}")
        self._listener.listen(1)
        self._listener.setblocking(False)
        self._connection: socket.socket | None = None

    def read(self) -> Iterator[StepReport]:
        """Yield all reports that have arrived; never waits."""
        if self._connection is None:
            with suppress(BlockingIOError):
                self._connection = self._listener.accept()[0]
        if self._connection is None:
            return
        with suppress(OSError):
            while content := self._connection.recv(_BUFFER_BYTES, socket.MSG_DONTWAIT):
                try:
                    report = _from_json(json.loads(content))
                except (ValueError, TypeError, KeyError):
                    report = StepReport(num_lost=1)
                yield report

    def close(self) -> None:
        self._listener.close()
        if self._connection is not None:
            self._connection.close()


def _to_json(report: StepReport, num_lost: int) -> str:
    # Drafts stay in the process of the drafters.
    records = report.records.items()
    rounds = {name: each.to_json() for name, each in records if isinstance(each, RoundRecord)}
    return json.dumps([rounds, report.tasks, report.failures, num_lost])


def _from_json(given: Sequence[Any]) -> StepReport:
    rounds, tasks, failures, num_lost = given
    records = {name: RoundRecord.from_json(each) for name, each in rounds.items()}
    return StepReport(records, tasks, [(name, reason) for name, reason in failures], num_lost)
