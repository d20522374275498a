"""Errors as OpenAI's API has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from specdec.clients.errors import (
    BROKEN_ANSWER,
    CLIENT_TIMEOUT,
    CONNECTION_FAILED,
    INVALID_REQUEST,
    WITHOUT_TYPE,
    SpecdecError,
)
from specdec.clients.request import INPUTS
from specdec.errors import shown
from specdec.gateway.openai_api.schema import PROMPT_KINDS

MAX_PARAM = 100
"""Most characters of `error.param`: room for `metadata.` and the longest key that is taken."""

RETRY_S = 1
"""Seconds after which a client may try again; an answer takes about as long."""

_INPUT = re.compile(r"([a-z_]+)((?:\[\d+\])?) ")
"""The input with which most of the server's messages begin, and the index of its part."""

_STATUSES = {
    "invalid_request": HTTPStatus.BAD_REQUEST,
    INVALID_REQUEST: HTTPStatus.BAD_REQUEST,
    "unsupported": HTTPStatus.BAD_REQUEST,
    "overloaded": HTTPStatus.TOO_MANY_REQUESTS,
    "shutting_down": HTTPStatus.SERVICE_UNAVAILABLE,
    "engine_failed": HTTPStatus.SERVICE_UNAVAILABLE,
    "configuration": HTTPStatus.SERVICE_UNAVAILABLE,
    CONNECTION_FAILED: HTTPStatus.SERVICE_UNAVAILABLE,
    BROKEN_ANSWER: HTTPStatus.SERVICE_UNAVAILABLE,
    "deadline_exceeded": HTTPStatus.REQUEST_TIMEOUT,
    CLIENT_TIMEOUT: HTTPStatus.REQUEST_TIMEOUT,
    "cancelled": HTTPStatus.SERVICE_UNAVAILABLE,
}
"""HTTP status of each error_type of server and client; others are faults of ours."""

_TRITON_ERRORS = {
    "INVALID_ARG": (HTTPStatus.BAD_REQUEST, "invalid_request"),
    "NOT_FOUND": (HTTPStatus.SERVICE_UNAVAILABLE, "not_ready"),
    "UNAVAILABLE": (HTTPStatus.SERVICE_UNAVAILABLE, "not_ready"),
    "CANCELLED": (HTTPStatus.SERVICE_UNAVAILABLE, "cancelled"),
}
"""HTTP status and `code` of Triton's own errors, by Triton's code. A model that is missing may be
about to load."""

_UNKNOWN_MODEL = "Request for unknown model"
"""Beginning of Triton's message for a model that is missing; in streams it has no code."""

_TYPES = {
    HTTPStatus.BAD_REQUEST: "invalid_request_error",
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.METHOD_NOT_ALLOWED: "invalid_request_error",
    HTTPStatus.REQUEST_TIMEOUT: "timeout_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "invalid_request_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "service_unavailable_error",
}
"""`error.type` of each status; other statuses are a `server_error`."""


class ApiError(Exception):
    """An error with its HTTP status and the fields of OpenAI's error object.

    `code` is a stable word for programs, such as `context_length_exceeded`. `param` is the
    request's field that is wrong, such as `messages[0].content`.
    """

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The error object as JSON values."""
        kind = _TYPES.get(self.status, "server_error")
        param = None if self.param is None else _sendable(_cut(self.param))
        message = _sendable(self.message)
        return {"error": {"message": message, "type": kind, "param": param, "code": self.code}}


def _cut(text: str) -> str:
    """Return the beginning of a field's name, which a client may have made long."""
    return text if len(text) <= MAX_PARAM else f"{text[:MAX_PARAM]}…"


def _sendable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which a client may send in an escape."""
    return text.encode(errors="backslashreplace").decode()


def bad_request(message: str, param: str | None, code: str = "invalid_value") -> ApiError:
    """Return the error for something that the client can mend."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, code, param)


def unavailable(message: str, code: str) -> ApiError:
    """Return the error of a server that cannot answer now."""
    headers = {"Retry-After": str(RETRY_S)}
    return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, message, code, headers=headers)


def unreadable(cause: BaseException | None) -> ApiError:
    """Return the error for a body in which Python's json module fails with `cause`."""
    reason = "a number has too many digits"
    if isinstance(cause, UnicodeDecodeError):
        reason = "it is not UTF-8"
    if isinstance(cause, RecursionError):
        reason = "it is nested too deeply"
    return bad_request(f"the body is not JSON: {reason}", None, "invalid_json")


def from_server(error: SpecdecError, fields: Mapping[str, str]) -> ApiError:
    """Return an error of the model `specdec`, or of the connection to it, as OpenAI's API has it.

    The message begins with an input's name, for which `fields` has the API's name if it differs.
    LangChain and LiteLLM know a full context by the words "prompt is too long".
    """
    status, code = _status_and_code(error)
    headers: dict[str, str] = {}
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        headers["Retry-After"] = str(RETRY_S)
    if status == HTTPStatus.REQUEST_TIMEOUT:
        # OpenAI's clients repeat a 408; the deadline would pass again.
        headers["x-should-retry"] = "false"
    message, param = error.message, None
    if status == HTTPStatus.BAD_REQUEST and message.startswith("prompt ("):
        code, param = "context_length_exceeded", fields.get("prompt", "prompt")
        message = f"prompt is too long: {message}"
    elif status == HTTPStatus.BAD_REQUEST and (found := _INPUT.match(message)):
        name, index = found.groups()
        if name in INPUTS:
            field = fields.get(name, name)
            param, message = field + index, field + message.removeprefix(name)
    return ApiError(status, message, code, param, headers)


def _status_and_code(error: SpecdecError) -> tuple[HTTPStatus, str]:
    if error.error_type in _STATUSES:
        # The gateway's own client is not the one that the error is for.
        code = "invalid_request" if error.error_type == INVALID_REQUEST else error.error_type
        return _STATUSES[error.error_type], code
    if error.error_type == WITHOUT_TYPE:
        is_missing = error.message.startswith(_UNKNOWN_MODEL)
        known = _TRITON_ERRORS.get("NOT_FOUND" if is_missing else error.status or "")
        if known is not None:
            return known
    return HTTPStatus.INTERNAL_SERVER_ERROR, "internal"


def from_validation(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """Return the first of pydantic's errors as OpenAI's API has it.

    A field of several types has an error for each of them; the one that lies deepest is meant.
    """
    of_field = [each for each in errors if each["loc"][:2] == errors[0]["loc"][:2]]
    first = max(of_field, key=lambda each: len(each["loc"]))
    if first["type"] == "json_invalid":
        return bad_request(f"the body is not JSON: {first['ctx']['error']}", None, "invalid_json")
    param = _path(first["loc"])
    if first["type"] == "extra_forbidden":
        param = ".".join(filter(None, (_path(first["loc"][:-1]), str(first["loc"][-1]))))
        return bad_request(f"unknown field {shown(param)}", param, "unknown_parameter")
    if param is None and first["type"] == "string_unicode":
        # A key with half of a surrogate pair, which no field has.
        return bad_request(
            f"unknown field {shown(first['input'])}", first["input"], "unknown_parameter"
        )
    if param is None:
        return bad_request(
            "the body must be a JSON object, with Content-Type: application/json", None
        )
    if first["type"] == "missing":
        return bad_request(f"{param} is missing", param, "missing_parameter")
    code = "unsupported" if first["type"] == "unsupported" else "invalid_value"
    given, message = first["input"], f"{_cut(param)}: {first['msg']}"
    if isinstance(given, str | int | float):
        message += f"; given {shown(given)}"
    return bad_request(message, param, code)


def _path(location: Sequence[str | int]) -> str | None:
    """Return a pydantic location as OpenAI writes it, such as `messages[0].content`.

    Names of union members, such as `list[str]`, are left out.
    """
    path = ""
    for index, part in enumerate(location):
        if isinstance(part, int):
            path += f"[{part}]" if path else ""
        elif index and part.isidentifier() and not _is_member(location, index):
            path += f".{part}" if path else part
    return path or None


def _is_member(location: Sequence[str | int], index: int) -> bool:
    """Return whether this part of a location names the member of a union, not a field.

    After `response_format` comes its type.
    """
    is_type = index > 1 and location[index - 1] == "response_format"
    return is_type or location[index] in _MEMBERS


_MEMBERS = {"str", "int", "float", "bool", "TextPart", "NamedTool", "none", *PROMPT_KINDS}
