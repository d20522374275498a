"""The errors of requests, engines and configuration, and their meaning for clients.

Each error has one of Triton's status codes and a stable `error_type`. The type begins the message
that the client gets, and it is a label of the metrics. Any other exception that ends a request is a
bug of ours, and the client gets it as `internal`.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

MAX_SHOWN = 60
"""Most characters of a client's own text that an error message repeats."""


class Status(Enum):
    """The status codes of Triton that specdec uses."""

    INVALID_ARG = "INVALID_ARG"
    UNAVAILABLE = "UNAVAILABLE"
    UNSUPPORTED = "UNSUPPORTED"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"


class SpecdecError(Exception):
    """The base class of all errors of specdec; the client reads `str(error)`."""

    error_type = "internal"
    status = Status.INTERNAL

    def __init__(self, message: str) -> None:
        super().__init__(f"{self.error_type}: {message}")


class ConfigurationError(SpecdecError):
    """The deployment is wrong: a model parameter, a checkpoint, or a pair that does not match."""

    error_type = "configuration"


class InvalidRequestError(SpecdecError):
    """The request is wrong; the message tells the client the limit and the value that it gave."""

    error_type = "invalid_request"
    status = Status.INVALID_ARG


class UnsupportedError(SpecdecError):
    """The request needs a feature that the engines of this deployment do not have."""

    error_type = "unsupported"
    status = Status.UNSUPPORTED


class OverloadedError(SpecdecError):
    """The limit of requests in flight or a tenant's share of it is reached; nothing was started."""

    error_type = "overloaded"
    status = Status.UNAVAILABLE


class ShuttingDownError(SpecdecError):
    """The server is stopping; another server may take the request."""

    error_type = "shutting_down"
    status = Status.UNAVAILABLE


class DeadlineExceededError(SpecdecError):
    """The deadline that the request set in `deadline_ms` has passed."""

    error_type = "deadline_exceeded"
    status = Status.UNAVAILABLE


class EngineFailedError(SpecdecError):
    """An engine failed or cannot be reached.

    The client gets this error only for the target. If a draft engine fails, the round goes on
    without a draft (drafting/models/engine.py).
    """

    error_type = "engine_failed"
    status = Status.UNAVAILABLE


class EngineLostError(EngineFailedError):
    """The engine has died or hangs; calls that it was running may never be answered."""


class DraftTimeoutError(EngineFailedError):
    """A draft engine took too long. The error is counted, and no client gets it."""

    error_type = "draft_timeout"


class RequestCancelledError(SpecdecError):
    """The client hung up or cancelled the request."""

    error_type = "cancelled"
    status = Status.CANCELLED


def shown(value: Any) -> str:
    """Quote a client's value for an error message, and cut it to MAX_SHOWN characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(text)} characters)"
