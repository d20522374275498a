"""Ask tritonserver over HTTP, again and again, whether it is ready; a thread of its own."""

from __future__ import annotations

import http.client
import threading
import time
from http import HTTPStatus

PERIOD_S = 0.25
TIMEOUT_S = 2.0
"""For one answer; a busy server takes milliseconds."""


class TritonProbe:
    """Knows what tritonserver last said of itself, and since when it has been silent."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._closing = threading.Event()
        self.is_ready = False
        """Every model was ready when it was last asked."""
        self.was_ready = False
        """It has been ready once."""
        self._answered_s = time.monotonic()
        threading.Thread(target=self._run, name="triton probe", daemon=True).start()

    @property
    def silent_s(self) -> float:
        """Seconds since it last answered anything; 0 before it was ready for the first time."""
        return time.monotonic() - self._answered_s if self.was_ready else 0.0

    def close(self) -> None:
        """Ask no more; does not wait for an answer that is due."""
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
                self._answered_s = time.monotonic()
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
