"""Tools in requests: functions that the model may call, and the calls of earlier turns."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from specdec.gateway.openai_api.api_object import ApiObject, Int32, JsonSchema, Text

MAX_TOOLS = 128
"""Most tools of a request, as in OpenAI's API."""

FunctionName = Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,64}$")]
"""OpenAI's limits for names of functions; such a name needs no escapes in JSON."""


def _of_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema. Raises PydanticCustomError if it is not one of an object."""
    given = schema.get("type", "object")
    if given != "object":
        raise PydanticCustomError(
            "parameters", "must be a schema of type 'object'; given type {type}", {"type": given}
        )
    return schema


class Function(ApiObject):
    """A function that the model may call."""

    name: FunctionName
    description: Text | None = None
    parameters: Annotated[JsonSchema, AfterValidator(_of_object)] | None = None
    """The JSON schema of the arguments; None for a function without arguments."""
    strict: bool | None = None


class Tool(ApiObject):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: Function


class NamedFunction(ApiObject):
    """The name of a function."""

    name: FunctionName


class NamedTool(ApiObject):
    """The choice of one function."""

    type: Literal["function"]
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class CalledFunction(ApiObject):
    """A function with the arguments of a call."""

    name: FunctionName
    arguments: Text
    """JSON of an object, unless the model wrote something else or was cut."""
    parsed_arguments: Any = None
    """Value that OpenAI's package puts beside the arguments; it has no effect."""


class ToolCall(ApiObject):
    """A call that an earlier answer made."""

    id: Text
    type: Literal["function"]
    function: CalledFunction
    index: Int32 | None = None
    """Number of the call in a stream, which OpenAI's package keeps; it has no effect."""

    def for_template(self) -> dict[str, Any]:
        """Return the call as chat templates take it: with an object as arguments, if they are."""
        function = {
            "name": self.function.name,
            "arguments": _object_or_text(self.function.arguments),
        }
        return {"id": self.id, "type": "function", "function": function}


def _object_or_text(arguments: str) -> dict[str, Any] | str:
    """Return arguments as an object, or as they are if they are no JSON of one."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments
