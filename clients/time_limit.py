"""The limit of a whole HTTP request; urllib3 itself only limits each wait for bytes."""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from urllib3 import Timeout
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as HTTPTimeoutError

from specdec.clients.errors import CLIENT_TIMEOUT, CONNECTION_FAILED, SpecdecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from urllib3 import BaseHTTPResponse


class TimeLimit:
    """The time limit of one request in seconds, counted from now; None is no limit."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._end_s = math.inf if limit_s is None else time.monotonic() + limit_s

    def until_response(self) -> Timeout:
        """Return the limit of connecting and of the wait for the first bytes."""
        return Timeout(total=self._limit_s)

    @contextmanager
    def while_reading(self, response: BaseHTTPResponse) -> Iterator[None]:
        """Read a response in this context; a thread ends the reading when the time is over.

        Raises SpecdecError as `explained_errors` does.
        """
        if self._limit_s is None:
            with self.explained_errors():
                yield
            return
        timer = threading.Timer(self._end_s - time.monotonic(), _end_reading, [response])
        timer.daemon = True
        timer.start()
        try:
            with self.explained_errors():
                yield
        finally:
            timer.cancel()

    @contextmanager
    def explained_errors(self) -> Iterator[None]:
        """Raise SpecdecError for urllib3's errors: `client_timeout` or `connection_failed`."""
        try:
            yield
        except HTTPError as error:
            if time.monotonic() >= self._end_s or _is_timeout(error):
                message, error_type = f"no complete answer in {self._limit_s} s", CLIENT_TIMEOUT
            else:
                message, error_type = str(error), CONNECTION_FAILED
            raise SpecdecError(message, error_type=error_type) from error


def _end_reading(response: BaseHTTPResponse) -> None:
    # It raises one of these if the whole response has been read already.
    with suppress(RuntimeError, ValueError, OSError):
        response.shutdown()


def _is_timeout(error: HTTPError) -> bool:
    return isinstance(error, HTTPTimeoutError) and not isinstance(error, NewConnectionError)
