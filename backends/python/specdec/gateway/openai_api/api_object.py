"""The parts of the schema that its objects have in common: texts, and values not supported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic_core import PydanticCustomError, core_schema

INT32 = Field(ge=-(2**31), le=2**31 - 1)
Int32 = Annotated[int, INT32]
Tokens = Annotated[list[Int32], Field(min_length=1)]


@dataclass(frozen=True)
class Only:
    """Restricts a field to some values, beside null, in requests and in the OpenAPI page."""

    allowed: tuple[object, ...]

    def check(self, value: object) -> object:
        """Return the value if it is allowed. Raises PydanticCustomError."""
        if value is None or value in self.allowed:
            return value
        texts = " or ".join(map(repr, self.allowed)) or "left out"
        raise PydanticCustomError(
            "unsupported",
            "not supported; it must be {texts}",
            {"texts": texts},
        )

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"enum": [*self.allowed, None]}


def only(*allowed: object) -> Only:
    """Return the annotation of a field that may have these values, beside null."""
    return Only(allowed)


def _with_whole_characters(text: str) -> str:
    """Return a text. Raises PydanticCustomError for half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError(
            "invalid_text", "must not have half of a surrogate pair"
        ) from None
    return text


Text = Annotated[str, AfterValidator(_with_whole_characters)]
"""A text that can be sent as UTF-8."""

MAX_NESTING = 64
"""Most levels of objects and lists in a JSON schema, as in guides."""


def _check_nesting(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema. Raises PydanticCustomError if it nests too deep."""
    level: list[Any] = [schema]
    for _ in range(MAX_NESTING):
        children = (each.values() if isinstance(each, dict) else each for each in level)
        level = [part for own in children for part in own if isinstance(part, dict | list)]
    if level:
        raise PydanticCustomError(
            "nesting", "may nest {most} levels deep; it is deeper", {"most": MAX_NESTING}
        )
    return schema


JsonSchema = Annotated[dict[str, Any], AfterValidator(_check_nesting)]
"""A JSON schema; what it means is checked later."""

Unsupported = Annotated[Any, only()]
"""A field that must be null or left out."""
Off = Annotated[bool | None, only(False)]
"""A switch that must be off."""


class ApiObject(BaseModel):
    """A JSON object of a request. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)
