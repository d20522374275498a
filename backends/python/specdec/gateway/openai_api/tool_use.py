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
        if self.is_free:
            return FreeAnswerReader(names, None if self.is_parallel else 1)
        return NamedCallReader(self.named)

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


_OPEN_KEYWORDS = {
    *("additionalProperties", "patternProperties", "minProperties"),
    *("allOf", "anyOf", "oneOf", "$ref"),
}
"""Keywords that tell which other properties an object has, or that it must have some."""
NOT_COMPILED = frozenset(
    {
        *("not", "if", "then", "else", "uniqueItems", "contains", "minContains", "maxContains"),
        *("dependentRequired", "dependentSchemas", "dependencies", "propertyNames"),
        *("unevaluatedItems", "unevaluatedProperties", "minProperties", "maxProperties"),
    }
)
"""Keywords that the compiler of guides refuses, some of them only beside others."""
_DATA_KEYWORDS = {"const", "enum", "default", "examples"}
"""Keywords whose values are data, not schemas."""
_MAPS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
"""Keywords whose values have schemas by name."""


def _schema(function: Function) -> dict[str, Any]:
    """Return the schema of a function's arguments, which are an object.

    It has only the arguments that the schema names, unless the schema tells of others. Without
    this, a small model invents some. Arguments are any object if the schema has a keyword that
    cannot be followed, unless it is strict.
    """
    given = function.parameters
    if given is None:
        return _object({})
    if not function.strict and _has_keyword(given, NOT_COMPILED):
        return {"type": "object"}
    properties, required = given.get("properties"), given.get("required", [])
    is_closed = (
        isinstance(properties, dict)
        and isinstance(required, list)
        and all(name in properties for name in required)
        and not _OPEN_KEYWORDS & given.keys()
    )
    return {"type": "object", **({"additionalProperties": False} if is_closed else {}), **given}


def _has_keyword(schema: Any, keywords: frozenset[str]) -> bool:
    """Return whether a schema uses one of these keywords anywhere."""
    if isinstance(schema, list):
        return any(_has_keyword(each, keywords) for each in schema)
    if not isinstance(schema, dict):
        return False
    return bool(keywords & schema.keys()) or any(
        _has_keyword(list(each.values()) if _has_names(key, each) else each, keywords)
        for key, each in schema.items()
        if key not in _DATA_KEYWORDS
    )


def _has_names(keyword: str, value: Any) -> bool:
    """Return whether the fields of a keyword's value are names, not keywords."""
    return keyword in _MAPS and isinstance(value, dict)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _moved(schema: Any, pointer: str) -> Any:
    """Return a schema as part of a larger one, at a JSON pointer, to which its references lead."""
    if isinstance(schema, list):
        return [_moved(each, pointer) for each in schema]
    if not isinstance(schema, dict):
        return schema
    moved: dict[str, Any] = {}
    for key, each in schema.items():
        if key in _DATA_KEYWORDS:
            moved[key] = each
        elif _has_names(key, each):
            moved[key] = {name: _moved(part, pointer) for name, part in each.items()}
        elif key == "$ref" and isinstance(each, str) and (each == "#" or each.startswith("#/")):
            moved[key] = pointer + each[1:]
        # A part has no address of its own, to which references could lead.
        elif key not in {"$id", "$schema"}:
            moved[key] = _moved(each, pointer)
    return moved
