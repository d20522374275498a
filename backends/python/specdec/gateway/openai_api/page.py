"""The parts of the OpenAPI page beside the requests: errors, and answers as events."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class ErrorFields(BaseModel):
    """The fields of an error."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(BaseModel):
    """The body of every error."""

    error: ErrorFields


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    # This name keeps FastAPI from adding 422, which no request gets.
    "4XX": {"model": ErrorBody, "description": "The request is refused."},
    "503": {
        "model": ErrorBody,
        "description": "No answer can come now.",
        "headers": {"Retry-After": {"schema": {"type": "integer"}, "required": True}},
    },
}
"""The errors of all routes."""

STREAM_RESPONSES: dict[int | str, dict[str, Any]] = {"200": {"content": {"text/event-stream": {}}}}
"""The answer with `stream`, beside that in one body."""
