"""Tools in requests: functions that the model may call, and the calls of earlier turns."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from specdec.gateway.openai_api.api_object import ApiObject, Text

MAX_TOOLS = 128
"""Most tools of a request, as in OpenAI's API."""

FunctionName = Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,64}$")]
"""OpenAI's limits for names of functions; such a name needs no escapes in JSON."""


class Function(ApiObject):
    """A function that the model may call."""

    name: FunctionName
    description: Text | None = None
    parameters: dict[str, Any] | None = None
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


def _arguments(text: str) -> str:
    """Return a call's arguments. Raises PydanticCustomError if they are no JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise PydanticCustomError("arguments", "must be a JSON object as a text")
    return text


class CalledFunction(ApiObject):
    """A function with the arguments of a call."""

    name: FunctionName
    arguments: Annotated[Text, AfterValidator(_arguments)]


class ToolCall(ApiObject):
    """A call that an earlier answer made."""

    id: Text
    type: Literal["function"]
    function: CalledFunction

    def for_template(self) -> dict[str, Any]:
        """Return the call as chat templates take it, with its arguments as an object."""
        function = {
            "name": self.function.name,
            "arguments": json.loads(self.function.arguments),
        }
        return {"id": self.id, "type": "function", "function": function}
