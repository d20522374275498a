"""Ask tritonserver over HTTP, again and again, whether it is ready."""

from __future__ import annotations

import http.client
import threading
import time
from http import HTTPStatus

PERIOD_S = 0.25
"""Seconds between an answer and the next probe."""
TIMEOUT_S = 2.0
"""Seconds to wait for one answer; a busy server takes milliseconds."""


class TritonProbe:
    """A thread that asks tritonserver whether it is ready, and keeps the last answer."""

    def __init__(self, host: str, port: int) -> None:
        """Begin to ask tritonserver at this host and HTTP port."""
        self._host, self._port = host, port
        self._closing = threading.Event()
        self.is_ready = False
        """Whether the last answer was that all models are ready; False if none came."""
        self.was_ready = False
        """Whether all models have been ready at least once."""
        self.answered_s = time.monotonic()
        """time.monotonic() of the last answer, ready or not; at first that of the probe's start."""
        threading.Thread(target=self._run, name="triton probe", daemon=True).start()

    def close(self) -> None:
        """Stop asking; do not wait for an outstanding answer."""
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
