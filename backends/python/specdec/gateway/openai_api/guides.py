"""Constraints on an answer, in OpenAI's form (`response_format`) and in vLLM's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Discriminator, Field, model_validator
from pydantic_core import PydanticCustomError

from specdec.gateway.openai_api.api_object import ApiObject, JsonSchema, Text

ANY_OBJECT = json.dumps({"type": "object"})
"""The schema of `json_object`."""


GUIDE_INPUTS = ("guided_decoding_guide_type", "guided_decoding_guide")
"""The model's inputs with which a message about a guide begins."""


@dataclass(frozen=True, slots=True)
class GuideFields:
    """A guide as inputs of the model `specdec`; their ranges are checked there."""

    guided_decoding_guide_type: str
    guided_decoding_guide: str


class TextFormat(ApiObject):
    """An answer without a constraint."""

    type: Literal["text"]


class JsonObjectFormat(ApiObject):
    """An answer that is a JSON object."""

    type: Literal["json_object"]


class NamedSchema(ApiObject):
    """A JSON schema with what tells the model about it, which has no effect here."""

    name: Text
    description: Text | None = None
    schema_: JsonSchema = Field(alias="schema")
    strict: bool | None = None
    """Answers follow the schema in any case."""


class JsonSchemaFormat(ApiObject):
    """An answer that follows a JSON schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat,
    Discriminator(
        "type",
        custom_error_type="invalid_type",
        custom_error_message="type must be text, json_object or json_schema",
    ),
]


class StructuredOutputs(ApiObject):
    """vLLM's constraints, of which one is given."""

    json_: JsonSchema | Text | None = Field(None, alias="json")
    regex: Text | None = None
    choice: list[Text] | None = Field(None, min_length=1)
    grammar: Text | None = None
    json_object: Literal[True] | None = None
    structural_tag: Text | None = None

    @model_validator(mode="after")
    def _has_one(self) -> StructuredOutputs:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            raise PydanticCustomError(
                "constraints",
                "exactly one constraint must be given; given {number}",
                {"number": len(given)},
            )
        return self

    def fields(self) -> GuideFields:
        """Return the constraint as inputs of the model."""
        if self.json_ is not None:
            schema = self.json_ if isinstance(self.json_, str) else json.dumps(self.json_)
            return GuideFields("json_schema", schema)
        if self.choice is not None:
            # A JSON string is a string of the grammar too.
            texts = " | ".join(json.dumps(each, ensure_ascii=False) for each in self.choice)
            return GuideFields("ebnf_grammar", f"start: {texts}")
        if self.json_object:
            return GuideFields("json_schema", ANY_OBJECT)
        for kind, text in (
            ("regex", self.regex),
            ("ebnf_grammar", self.grammar),
            ("structural_tag", self.structural_tag),
        ):
            if text is not None:
                return GuideFields(kind, text)
        raise AssertionError("one constraint is given")


def guide_of_format(form: ResponseFormat | None) -> GuideFields | None:
    """Return the guide of a `response_format`; None if it asks for none."""
    if isinstance(form, JsonObjectFormat):
        return GuideFields("json_schema", ANY_OBJECT)
    if isinstance(form, JsonSchemaFormat):
        return GuideFields("json_schema", json.dumps(form.json_schema.schema_))
    return None
