"""Send responses in order on a thread of their own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import triton_python_backend_utils as pb_utils

from specdec.triton_backend.tensors import FINAL, error_response


class Outbox:
    """A queue of calls that send responses; one thread makes them in order.

    Sending waits for the server process. With the queue, threads that make responses need not wait.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def put(self, send: Callable[[], None]) -> None:
        """Queue `send`, which is called once. If it raises an error, the error is logged."""
        self._queue.put(send)

    def put_last(self, sender: Any, make: Callable[[], Any]) -> None:
        """Queue the last response for `sender`; `make` returns it, or None for an empty one.

        If it cannot be made or sent, an error is sent instead, because the reader waits for it.
        """

        def send() -> None:
            try:
                sender.send(make(), flags=FINAL)
            except Exception as error:
                sender.send(error_response(error), flags=FINAL)
                raise

        self._queue.put(send)

    def flush(self) -> None:
        """Wait until everything queued so far is sent, at most 10 s."""
        is_sent = threading.Event()
        self._queue.put(is_sent.set)
        is_sent.wait(timeout=10)

    def close(self) -> None:
        """Send everything queued and end the thread, within 10 s."""
        self._queue.put(None)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while (send := self._queue.get()) is not None:
            try:
                send()
            except Exception as error:  # noqa: BLE001 - one caller gone must not silence others
                pb_utils.Logger.log_error(f"[specdec] a response was not sent: {error!r}")
