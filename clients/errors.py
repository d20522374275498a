"""The exception that all clients raise, and its types."""

from __future__ import annotations

import re

# The form of the server's messages: `error_type: text`.
_HEAD = re.compile(r"([a-z][a-z0-9_]*): (.*)", re.DOTALL)

CLIENT_TIMEOUT = "client_timeout"
CONNECTION_FAILED = "connection_failed"
INVALID_REQUEST = "client_invalid_request"
BROKEN_ANSWER = "client_broken_answer"
WITHOUT_TYPE = "triton"

# Triton code of each error_type of the server, because streams carry only the text.
_STATUS = {
    "invalid_request": "INVALID_ARG",
    "unsupported": "UNSUPPORTED",
    "overloaded": "UNAVAILABLE",
    "shutting_down": "UNAVAILABLE",
    "deadline_exceeded": "UNAVAILABLE",
    "engine_failed": "UNAVAILABLE",
    "configuration": "INTERNAL",
    "cancelled": "CANCELLED",
    "internal": "INTERNAL",
}


class SpecdecError(Exception):
    """A request that failed, on the server or on the way to it.

    `error_type` is the stable word with which the server's message begins. Errors of Triton itself
    have no such word; their type is `triton`. The types of the client's own errors are
    `client_timeout`, `connection_failed`, `client_invalid_request` and `client_broken_answer`.
    `message` is the text without the type. `status` is the name of the Triton code (`INVALID_ARG`,
    `UNAVAILABLE`, …), or None if it is unknown.
    """

    def __init__(self, message: str, *, error_type: str, status: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.error_type = error_type
        self.status = status

    @classmethod
    def from_server(cls, text: str, status: str | None = None) -> SpecdecError:
        """Return the error in a server's message, `error_type: text` or Triton's own words."""
        head = _HEAD.fullmatch(text)
        if head is None:
            return cls(text, error_type=WITHOUT_TYPE, status=status)
        return cls(head[2], error_type=head[1], status=status or _STATUS.get(head[1]))

    def __str__(self) -> str:
        code = f" [{self.status}]" if self.status else ""
        return f"{self.error_type}: {self.message}{code}"
