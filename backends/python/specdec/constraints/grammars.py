"""Turn guides into grammars in llguidance's form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher, StructTag
from llguidance.gbnf_to_lark import any_to_lark

from specdec.constraints.guide import (
    EBNF_GRAMMAR,
    JSON,
    JSON_SCHEMA,
    REGEX,
    STRUCTURAL_TAG,
    Guide,
)
from specdec.errors import InvalidRequestError

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

MAX_GUIDE_BYTES = 64 * 1024
"""Most bytes of a guide; the largest schemas that people publish have about as many."""
MAX_NESTING = 64
"""Most levels of objects and lists in a guide's JSON; the compiler recurses over them."""

ANY_JSON: Mapping[str, Any] = {"type": ["object", "array"]}
"""The schema of the kind `json`: an object or a list, as in NVIDIA's engines."""

WHITE_SPACE: JsonCompileOptions = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
}
"""White space of JSON: that of Python's json.dumps and no other. So an answer cannot go on with
white space for ever, and the guide forces more tokens."""


def grammar_of(guide: Guide) -> str:
    """Return a guide as llguidance takes it.

    Raises InvalidRequestError for a guide that is too large or that is not what its kind says. The
    compiler finds further faults.
    """
    num_bytes = len(guide.text.encode())
    if num_bytes > MAX_GUIDE_BYTES:
        raise InvalidRequestError(
            f"guided_decoding_guide may have {MAX_GUIDE_BYTES} bytes; given {num_bytes}"
        )
    return _GRAMMARS[guide.kind](guide.text)


def _any_json(text: str) -> str:  # noqa: ARG001
    return LLMatcher.grammar_from_json_schema(dict(ANY_JSON), WHITE_SPACE)


def _json_schema(text: str) -> str:
    return LLMatcher.grammar_from_json_schema(_as_object(_parsed(text)), WHITE_SPACE)


def spaced_schema(schema: Any) -> dict[str, Any]:
    """Return a JSON schema with our white space, for engines that compile it by llguidance.

    Raises InvalidRequestError if it is no schema.
    """
    return {"x-guidance": WHITE_SPACE} | _as_object(schema)


def _as_object(schema: Any) -> dict[str, Any]:
    """Return a JSON schema as an object. Raises InvalidRequestError if it is no schema."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        raise InvalidRequestError("guided_decoding_guide: a schema must be an object or a boolean")
    return schema


def as_lark(guide: Guide) -> str:
    """Return a guide of type `ebnf_grammar` or `structural_tag` as a grammar in Lark's form.

    Raises InvalidRequestError as `grammar_of` does.
    """
    if guide.kind == STRUCTURAL_TAG:
        return _structural_tag(guide.text)
    try:
        return any_to_lark(guide.text)
    except Exception as error:  # noqa: BLE001 - the converter raises anything
        raise InvalidRequestError(f"guided_decoding_guide is no grammar: {error}") from None


def _ebnf(text: str) -> str:
    return LLMatcher.grammar_from_lark(as_lark(Guide(EBNF_GRAMMAR, text)))


def _structural_tag(text: str) -> str:
    """Return the grammar of free text with tags in it, whose contents follow schemas.

    The JSON has the form of xgrammar's `structural_tag`, which NVIDIA's engines take.
    """
    parsed = _parsed(text)
    try:
        triggers = parsed["triggers"]
        structures = [(each["begin"], each["schema"], each["end"]) for each in parsed["structures"]]
    except (KeyError, TypeError):
        structures, triggers = [], None
    texts = [triggers] if not isinstance(triggers, list) else triggers
    texts = [*texts, *(each for begin, _, end in structures for each in (begin, end))]
    if not all(isinstance(each, str) for each in texts) or isinstance(triggers, str):
        raise InvalidRequestError(
            "guided_decoding_guide must have 'triggers', a list of texts, and 'structures', each "
            "with the texts 'begin' and 'end' and with 'schema'"
        )
    tags = []
    for begin, schema, end in structures:
        trigger = next((each for each in triggers if each and begin.startswith(each)), None)
        if trigger is None:
            raise InvalidRequestError(
                f"guided_decoding_guide has no trigger that begins the tag {begin!r}"
            )
        own = spaced_schema(schema)
        tags.append(StructTag(trigger=trigger, begin=begin, grammar=own, end=end))
    if not tags:
        raise InvalidRequestError("guided_decoding_guide must have 1 or more structures; given 0")
    return StructTag.to_grammar(tags, assume_special=False)


def _parsed(text: str) -> Any:
    """Return a guide's JSON value. Raises InvalidRequestError if it is none, or nests too deep."""
    depth = deepest = 0
    is_string = is_escaped = False
    # Counted before parsing, because parsers recurse.
    for character in text:
        if is_string:
            is_string = is_escaped or character != '"'
            is_escaped = not is_escaped and character == "\\"
        elif character == '"':
            is_string = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    if deepest > MAX_NESTING:
        raise InvalidRequestError(
            f"guided_decoding_guide may nest {MAX_NESTING} levels deep; given {deepest}"
        )
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"guided_decoding_guide is not JSON: {error}") from None


_GRAMMARS: dict[str, Callable[[str], str]] = {
    JSON: _any_json,
    JSON_SCHEMA: _json_schema,
    REGEX: LLMatcher.grammar_from_regex,
    EBNF_GRAMMAR: _ebnf,
    STRUCTURAL_TAG: _structural_tag,
}
