"""The one exception of the clients."""

from __future__ import annotations

import re

# The head that the server puts before the human text: `error_type: text`.
_HEAD = re.compile(r"([a-z][a-z0-9_]*): (.*)", re.DOTALL)

CLIENT_TIMEOUT = "client_timeout"
CONNECTION_FAILED = "connection_failed"
INVALID_REQUEST = "client_invalid_request"
BROKEN_ANSWER = "client_broken_answer"
WITHOUT_TYPE = "triton"

# The Triton code of each error_type that the server sends: streams carry the text alone.
_STATUS = {
    "invalid_request": "INVALID_ARG",
    "unsupported": "UNSUPPORTED",
    "overloaded": "UNAVAILABLE",
    "shutting_down": "UNAVAILABLE",
    "deadline_exceeded": "UNAVAILABLE",
    "engine_failed": "UNAVAILABLE",
    "cancelled": "CANCELLED",
    "internal": "INTERNAL",
}


class SpecdecError(Exception):
    """A request that failed, on the server or on the way to it.

    `error_type` is the stable word at the head of the server's message. Errors in Triton's own
    words have none and are called `triton`; errors found on this side are `client_timeout`,
    `connection_failed`, `client_invalid_request` and `client_broken_answer`.
    `status` is the name of the Triton code (`INVALID_ARG`, `UNAVAILABLE`, …) where it is known.
    """

    def __init__(self, message: str, *, error_type: str, status: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.error_type = error_type
        self.status = status

    @classmethod
    def from_server(cls, text: str, status: str | None = None) -> SpecdecError:
        """Split the server's `error_type: human text`."""
        head = _HEAD.fullmatch(text)
        if head is None:
            return cls(text, error_type=WITHOUT_TYPE, status=status)
        return cls(head[2], error_type=head[1], status=status or _STATUS.get(head[1]))

    def __str__(self) -> str:
        code = f" [{self.status}]" if self.status else ""
        return f"{self.error_type}: {self.message}{code}"
