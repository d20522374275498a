"""Ask tritonserver over HTTP, again and again, whether it is ready; a thread of its own."""

from __future__ import annotations

import http.client
import threading
import time
from http import HTTPStatus

PERIOD_S = 0.25
TIMEOUT_S = 2.0
"""Seconds for one answer; a busy server takes milliseconds."""


class TritonProbe:
    """What tritonserver last said of itself, and when."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._closing = threading.Event()
        self.is_ready = False
        """Whether every model was ready when it was last asked."""
        self.was_ready = False
        """Whether it has been ready once."""
        self.answered_s = time.monotonic()
        """time.monotonic() of its last answer, whatever that was."""
        threading.Thread(target=self._run, name="triton probe", daemon=True).start()

    def close(self) -> None:
        """Stop asking; an answer that is still to come is not waited for."""
        self._closing.set()
        self.is_ready = False

    def _run(self) -> None:
        while not self._closing.is_set():
            status = self._ask()
            if self._closing.is_set():
                return
            self.is_ready = status == HTTPStatus.OK
            self.was_ready |= self.is_ready
            if status is not None:
                self.answered_s = time.monotonic()
            self._closing.wait(PERIOD_S)

    def _ask(self) -> int | None:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
