"""The part of `fuzz` that runs within Schemathesis, with the Python of its environment.

It caps the number of tokens that a request asks for, checks each answer, and writes a line of JSON
for it into the file of CASES_VARIABLE.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import schemathesis

CASES_VARIABLE = "SPECDEC_FUZZ_CASES"
"""Environment variable with the path of the file to which the cases are added."""
ALL_VALID_VARIABLE = "SPECDEC_FUZZ_ALL_VALID"
"""Environment variable that is set if every request must be answered 200."""

MAX_TOKENS = 4
"""Most tokens of an answer. With more, a run would measure the engine and not the gateway."""
MAX_INT32 = 2**31 - 1
MODEL = "specdec"
OTHER_MODELS = 8
"""About one in this many requests keeps the name of a model that was drawn for it."""

TOKEN_FIELDS = ("max_tokens", "max_completion_tokens")
PLAIN_ERRORS = {404, 405}
"""Statuses of refusals that come without a word about the request's body."""
REPEATABLE = {429, 503}
"""Statuses with which the server may refuse a right request for a while."""

begun_s: dict[str, float] = {}
"""The time at which each running case began, by its id."""


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Cap the request, and note its beginning."""
    if isinstance(case.body, dict) and case.path.endswith("completions"):
        _cap(case.body)
        if ALL_VALID_VARIABLE in os.environ:
            case.body = _with_whole_numbers(case.body)
    begun_s[case.id] = time.monotonic()


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Write down an answered case."""
    _write(case, response.status_code, fault_of(response))


@schemathesis.hook
def after_network_error(context: Any, case: Any, request: Any) -> None:
    """Write down a case without an answer."""
    _write(case, 0, "no answer")


@schemathesis.check
def keeps_the_promises(ctx: Any, response: Any, case: Any) -> None:
    """Raise AssertionError for an answer that breaks a promise."""
    fault = fault_of(response)
    if fault:
        raise AssertionError(fault)


def fault_of(response: Any) -> str:
    """Return what is wrong with an answer; empty for nothing."""
    status, text = response.status_code, response.content.decode(errors="replace")
    if status >= 500 and status != 503:
        return f"status {status}: {text[:500]}"
    if status in REPEATABLE and "retry-after" not in response.headers:
        return f"status {status} without Retry-After"
    if status >= 400 and response.request.method != "HEAD":
        if not _is_error(text):
            return f"not OpenAI's form of an error: {text[:500]}"
        if ALL_VALID_VARIABLE in os.environ and status not in REPEATABLE:
            return f"a valid request is refused: {text[:500]}"
    if "text/event-stream" in "".join(response.headers.get("content-type", ())):
        return _fault_of_stream(text)
    return ""


def _fault_of_stream(text: str) -> str:
    """Return what is wrong with server-sent events; empty for nothing."""
    *events, rest = text.split("\n\n")
    if rest or not events or not all(each.startswith("data: ") for each in events):
        return f"no server-sent events: {text[:500]}"
    last = events[-1].removeprefix("data: ")
    if last == "[DONE]" or (_is_error(last) and '"type":"server_error"' not in last):
        return ""
    return f"the stream ends with {last[:500]}"


def _is_error(text: str) -> bool:
    """Return whether a text is an error object of OpenAI's API."""
    try:
        body = json.loads(text)
    except ValueError:
        return False
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or set(error) != {"message", "type", "param", "code"}:
        return False
    texts = all(
        isinstance(error[name], str) and error[name] for name in ("message", "type", "code")
    )
    return texts and (error["param"] is None or isinstance(error["param"], str))


def _cap(body: dict[str, Any]) -> None:
    """Ask for few tokens, and mostly for a known model; values that are refused stay."""
    for name in TOKEN_FIELDS:
        value = body.get(name)
        if isinstance(value, int) and MAX_TOKENS < value <= MAX_INT32:
            body[name] = MAX_TOKENS
    if all(body.get(name) is None for name in TOKEN_FIELDS):
        body["max_tokens"] = MAX_TOKENS
    name = body.get("model")
    if isinstance(name, str) and len(repr(body)) % OTHER_MODELS:
        body["model"] = MODEL


def _with_whole_numbers(value: Any) -> Any:
    """Return a JSON value with 2 instead of 2.0, which JSON Schema counts as an integer too."""
    if isinstance(value, dict):
        return {name: _with_whole_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _write(case: Any, status: int, fault: str) -> None:
    meta = case.meta
    line = {
        "operation": f"{case.method} {case.path}",
        "phase": meta.phase.name.value if meta else "",
        "mode": meta.generation.mode.value if meta else "",
        "status": status,
        "seconds": round(time.monotonic() - begun_s.pop(case.id), 3),
        "fault": fault,
    }
    with Path(os.environ[CASES_VARIABLE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
