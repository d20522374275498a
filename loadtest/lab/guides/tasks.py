"""Questions whose answers must follow a guide: JSON schemas made at random, SQL and more."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

NAMES = (
    *("name", "title", "kind", "größe", "価格", "is_open", "tags", "first line", "x-y", "id"),
    *("street", "items", "count", "score", "note", "ключ", "owner", "state"),
)
"""Names of properties, some of which need several bytes a character."""
WORDS = ("red", "blue", "north", "open", "closed", "small", "very large", "Zürich", "n/a", "A-1")
PATTERNS = ("^[A-Z]{3}-[0-9]{2}$", "^(yes|no|maybe)$", "^[a-z]+@[a-z]+[.]org$", "^#[0-9a-f]{6}$")
FORMATS = ("date", "uuid", "ipv4")
MAX_DEPTH = 3
FUNCTIONS = ("get_weather", "book_table", "send_mail", "create_ticket")


@dataclass(frozen=True, slots=True)
class GuideTask:
    """A question, the guide for its answer, and a check of the answer by other means."""

    name: str
    group: str
    """The kind of task, a row of the table."""
    question: str
    kind: str
    """`guided_decoding_guide_type`."""
    guide: str
    """`guided_decoding_guide`."""
    is_valid: Callable[[str], bool]
    """Function that returns whether an answer's text follows the guide."""


def json_tasks(count: int, seed: int) -> Iterator[GuideTask]:
    """Yield tasks with schemas that are drawn at random."""
    draw = random.Random(seed)
    for number in range(count):
        schema = _object(draw, MAX_DEPTH)
        question = f"Write example {number} of a record with {', '.join(schema['properties'])}."
        yield _of_schema(f"json-{number}", "JSON", question, schema)


def call_tasks(count: int, seed: int) -> Iterator[GuideTask]:
    """Yield tasks for the call of one of several functions."""
    draw = random.Random(seed)
    for number in range(count):
        choices = [
            {
                "type": "object",
                "properties": {"name": {"const": name}, "arguments": _object(draw, 1)},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for name in draw.sample(FUNCTIONS, 2)
        ]
        question = f"Call a function for request {number}: it is urgent."
        yield _of_schema(f"call-{number}", "function call", question, {"anyOf": choices})


def sql_tasks(count: int, seed: int) -> Iterator[GuideTask]:
    """Yield tasks for queries of tables with columns that are drawn at random."""
    draw = random.Random(seed)
    for number in range(count):
        table, *columns = draw.sample([each for each in NAMES if each.isidentifier()], 5)
        names = "|".join(columns)
        rule = " | ".join(map(json.dumps, columns))
        grammar = "\n".join(
            (
                'start: "SELECT " column (", " column)? " FROM " table where? ";"',
                f"table: {json.dumps(table)}",
                'where: " WHERE " column " " ("=" | "<" | ">") " " NUMBER',
                f"column: {rule}",
                "NUMBER: /[0-9]{1,4}/",
            )
        )
        condition = f"( WHERE ({names}) [=<>] [0-9]{{1,4}})?;"
        query = " ".join(
            ("SELECT", f"({names})(, ({names}))?", "FROM", re.escape(table) + condition)
        )
        question = f"Write a SQL query of the table {table} with columns {', '.join(columns)}."
        yield GuideTask(f"sql-{number}", "SQL", question, "ebnf_grammar", grammar, _matching(query))


def regex_tasks(count: int, seed: int) -> Iterator[GuideTask]:
    """Yield tasks with a choice or another regular expression."""
    draw = random.Random(seed)
    for number in range(count):
        words = "|".join(map(re.escape, draw.sample(WORDS, 3)))
        pattern = f"({words})( [a-z]{{1,8}}){{{draw.randint(0, 2)},3}}[.!]"
        question = f"Answer question {number} in a few words: what is your favourite colour?"
        yield GuideTask(
            f"regex-{number}", "regular expression", question, "regex", pattern, _matching(pattern)
        )


def _of_schema(name: str, group: str, question: str, schema: dict[str, Any]) -> GuideTask:
    text = json.dumps(schema, ensure_ascii=False)
    return GuideTask(name, group, question, "json_schema", text, _following(schema))


def _following(schema: dict[str, Any]) -> Callable[[str], bool]:
    # Only this measurement needs the package.
    import jsonschema  # noqa: PLC0415

    formats = jsonschema.Draft202012Validator.FORMAT_CHECKER
    validator = jsonschema.Draft202012Validator(schema, format_checker=formats)

    def is_valid(text: str) -> bool:
        try:
            return bool(validator.is_valid(json.loads(text)))
        except ValueError:
            return False

    return is_valid


def _matching(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _object(draw: random.Random, depth: int) -> dict[str, Any]:
    names = draw.sample(NAMES, draw.randint(1, 4))
    return {
        "type": "object",
        "properties": {name: _schema(draw, depth - 1) for name in names},
        "required": names if draw.random() < 0.7 else names[:1],
        "additionalProperties": False,
    }


def _schema(draw: random.Random, depth: int) -> dict[str, Any]:
    if depth > 0 and draw.random() < 0.4:
        return draw.choice((_object, _array, _any_of))(draw, depth)
    return draw.choice((_text, _number, _fixed))(draw)


def _array(draw: random.Random, depth: int) -> dict[str, Any]:
    least = draw.randint(0, 2)
    items = _schema(draw, depth - 1)
    return {"type": "array", "items": items, "minItems": least, "maxItems": least + 2}


def _any_of(draw: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [_schema(draw, depth - 1), {"type": "null"}]}


def _text(draw: random.Random) -> dict[str, Any]:
    given = draw.choice(("maxLength", "pattern", "format"))
    value: Any = {
        "maxLength": draw.randint(5, 30),
        "pattern": draw.choice(PATTERNS),
        "format": draw.choice(FORMATS),
    }[given]
    return {"type": "string", given: value}


def _number(draw: random.Random) -> dict[str, Any]:
    least = draw.randint(-50, 50)
    kind = draw.choice(("integer", "number"))
    found: dict[str, Any] = {
        "type": kind,
        "minimum": least,
        "maximum": least + draw.randint(1, 999),
    }
    if kind == "number":
        found["multipleOf"] = 0.25
    return found


def _fixed(draw: random.Random) -> dict[str, Any]:
    return draw.choice(
        ({"enum": draw.sample(WORDS, 3)}, {"type": "boolean"}, {"const": draw.choice(WORDS)})
    )
