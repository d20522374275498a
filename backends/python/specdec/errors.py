"""Every error the product raises on purpose, and what each means to a client.

An error has a stable `error_type` (the head of the message on the wire and a metric label) and
one of Triton's status codes. Anything else that escapes is a bug of ours and is reported as
`internal`.
"""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """Triton's status codes, as far as they are used here."""

    INVALID_ARG = "INVALID_ARG"
    UNAVAILABLE = "UNAVAILABLE"
    UNSUPPORTED = "UNSUPPORTED"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"


class SpecdecError(Exception):
    """Base of the tree; `str(error)` is what the client reads."""

    error_type = "internal"
    status = Status.INTERNAL

    def __init__(self, message: str) -> None:
        super().__init__(f"{self.error_type}: {message}")


class ConfigurationError(SpecdecError):
    """The deployment is wrong: a model parameter, a checkpoint, a pair that does not match."""

    error_type = "configuration"


class InvalidRequestError(SpecdecError):
    """The client can mend it; the message names the limit and the value given."""

    error_type = "invalid_request"
    status = Status.INVALID_ARG


class UnsupportedError(SpecdecError):
    """A documented capability that this deployment's engines lack."""

    error_type = "unsupported"
    status = Status.UNSUPPORTED


class OverloadedError(SpecdecError):
    """The in-flight limit is reached; nothing was started."""

    error_type = "overloaded"
    status = Status.UNAVAILABLE


class ShuttingDownError(SpecdecError):
    """The server is stopping; another one may take the request."""

    error_type = "shutting_down"
    status = Status.UNAVAILABLE


class DeadlineExceededError(SpecdecError):
    """The request's own deadline_ms has passed."""

    error_type = "deadline_exceeded"
    status = Status.UNAVAILABLE


class EngineFailedError(SpecdecError):
    """The target engine failed or is not there; a failing draft is no error: see drafting."""

    error_type = "engine_failed"
    status = Status.UNAVAILABLE


class EngineLostError(EngineFailedError):
    """The engine's process has died; calls that it had will never be answered."""


class DraftTimeoutError(EngineFailedError):
    """A draft engine took too long; counted, never seen by a client."""

    error_type = "draft_timeout"


class RequestCancelledError(SpecdecError):
    """The client hung up or asked to stop."""

    error_type = "cancelled"
    status = Status.CANCELLED
