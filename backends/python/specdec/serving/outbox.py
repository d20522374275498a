"""Responses on their way out, sent in order by a thread of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import triton_python_backend_utils as pb_utils


class Outbox:
    """Sending a response waits for the server process; who makes responses must not."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def put(self, send: Callable[[], None]) -> None:
        """Queues `send`, to be called once."""
        self._queue.put(send)

    def flush(self) -> None:
        """Return when everything queued so far is sent, or after 10 s."""
        is_sent = threading.Event()
        self._queue.put(is_sent.set)
        is_sent.wait(timeout=10)

    def close(self) -> None:
        """Returns when everything queued is sent, or after 10 s."""
        self._queue.put(None)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while (send := self._queue.get()) is not None:
            try:
                send()
            except Exception as error:  # noqa: BLE001 - one caller gone must not silence others
                pb_utils.Logger.log_error(f"[specdec] a response was not sent: {error!r}")
