"""Turn a request's tools into a guide, stop words and a reader of the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specdec.gateway.openai_api.errors import bad_request
from specdec.gateway.openai_api.guides import GuideFields
from specdec.gateway.openai_api.schema import ChatRequest
from specdec.gateway.openai_api.tools import MAX_TOOLS, Function, NamedTool
from specdec.gateway.tool_calls.answer_readers import (
    CLOSING,
    OPENING,
    AnswerReader,
    FreeAnswerReader,
    NamedCallReader,
    RequiredCallsReader,
)

MAX_CALLS = 16
"""Most calls of one answer that must have calls. Without a limit, a small model may go on with
calls until the context is full."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of a request whose answer may have calls."""

    functions: tuple[Function, ...]
    choice: Literal["auto", "required", "named"]
    is_parallel: bool
    """Whether an answer may have several calls."""
    named: str = ""
    """The function that must be called, if the choice names one."""

    @property
    def is_free(self) -> bool:
        """Whether the model may answer without a call."""
        return self.choice == "auto"

    def for_template(self) -> list[dict[str, Any]]:
        """Return the tools as chat templates take them."""
        return [
            {"type": "function", "function": each.model_dump(exclude_none=True, exclude={"strict"})}
            for each in self.functions
        ]

    def guide(self) -> GuideFields | None:
        """Return the guide of the answer; None if it is free.

        A required call has the same form for all models, as in vLLM: a list of calls, or the
        arguments of the named function. Where the model may choose, calls in Hermes' tags follow
        the schemas, unless every function has `strict: false`.
        """
        if self.choice == "required":
            return GuideFields("json_schema", json.dumps(self._schema_of_calls()))
        if self.is_free:
            if all(each.strict is False for each in self.functions):
                return None
            return GuideFields("structural_tag", json.dumps(self._tags()))
        (function,) = (each for each in self.functions if each.name == self.named)
        return GuideFields("json_schema", json.dumps(_schema(function)))

    def stop_words(self) -> list[str]:
        """Return the words that end the answer: after the first call, if it may have only one."""
        return [CLOSING] if self.is_free and not self.is_parallel else []

    def reader(self) -> AnswerReader:
        """Return the reader of one answer."""
        names = frozenset(each.name for each in self.functions)
        if self.choice == "required":
            return RequiredCallsReader(names)
        return FreeAnswerReader(names) if self.is_free else NamedCallReader(self.named)

    def _schema_of_calls(self) -> dict[str, Any]:
        schemas = {f"tool{number}": _schema(each) for number, each in enumerate(self.functions)}
        calls = [
            _object({"name": {"const": each.name}, "arguments": {"$ref": f"#/$defs/{key}"}})
            for key, each in zip(schemas, self.functions, strict=True)
        ]
        return {
            "type": "array",
            "items": {"anyOf": calls},
            "minItems": 1,
            "maxItems": MAX_CALLS if self.is_parallel else 1,
            "$defs": {key: _moved(each, f"#/$defs/{key}") for key, each in schemas.items()},
        }

    def _tags(self) -> dict[str, Any]:
        structures = [
            {
                "begin": f'{OPENING}\n{{"name": "{each.name}", "arguments": ',
                "schema": _schema(each),
                "end": f"}}\n{CLOSING}",
            }
            for each in self.functions
        ]
        return {"triggers": [OPENING], "structures": structures}


def tool_use_of(body: ChatRequest) -> ToolUse | None:
    """Return how a chat uses its tools; None if the answer has no calls. Raises ApiError."""
    functions = tuple(each.function for each in body.tools or ())
    choice = body.tool_choice or "auto"
    if not functions:
        if choice not in {"none", "auto"}:
            raise bad_request("tool_choice needs tools; given none", "tool_choice")
        return None
    _check(functions)
    if choice == "none":
        return None
    is_parallel = body.parallel_tool_calls is not False
    if not isinstance(choice, NamedTool):
        return ToolUse(functions, choice, is_parallel)
    name = choice.function.name
    if name not in {each.name for each in functions}:
        raise bad_request(
            f"tool_choice must name a function of tools; given {name!r}", "tool_choice"
        )
    return ToolUse(functions, "named", is_parallel, name)


def _check(functions: Sequence[Function]) -> None:
    if len(functions) > MAX_TOOLS:
        raise bad_request(f"tools may have {MAX_TOOLS} tools; given {len(functions)}", "tools")
    names = [each.name for each in functions]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise bad_request(f"tools[{index}] has the name of an earlier tool: {name!r}", "tools")


_SAYS_MORE = {"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"}
"""Keywords by which a schema says itself which other properties an object may have."""


def _schema(function: Function) -> dict[str, Any]:
    """Return the schema of a function's arguments, which are an object.

    It has only the arguments that the schema names, unless the schema says more. Without this, a
    small model invents some.
    """
    given = function.parameters
    if given is None:
        return _object({})
    closed = {} if _SAYS_MORE & given.keys() else {"additionalProperties": False}
    return {"type": "object", **closed, **given}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _moved(value: Any, place: str) -> Any:
    """Return a schema whose references to itself hold at `place` of a larger schema."""
    if isinstance(value, list):
        return [_moved(each, place) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: place + each[1:]
        if key == "$ref" and isinstance(each, str) and each.startswith("#")
        else _moved(each, place)
        for key, each in value.items()
    }
