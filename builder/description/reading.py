"""Reading TOML tables into dataclasses, with an error for every unknown key or wrong type."""

from __future__ import annotations

import dataclasses
import difflib
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from specdec.builder.errors import BuildError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")

FIXED = {
    "gather_context_logits": "an engine that verifies draft tokens returns no context logits: "
    "trtllm-build refuses both together",
    "max_beam_width": "draft tokens are verified with a beam width of 1",
    "enable_kv_cache_reuse": "a target that verifies draft tokens does not load without it; it is "
    "on",
    "use_paged_context_fmha": "KV reuse needs it; it is on",
    "speculative_decoding_mode": "it follows from the drafts and [self_speculation]",
}
"""Keys that people know from TensorRT-LLM, each with why a pair file cannot set it."""


def read_toml(file: Path) -> dict[str, Any]:
    """Return the file's tables. Raises BuildError if it cannot be read or is not TOML."""
    try:
        table: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise BuildError(f"{file} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BuildError(f"{file} is not TOML: {error}") from error
    return table


def from_table(kind: type[T], table: Mapping[str, Any], where: str, **given: Any) -> T:
    """Create a dataclass `kind` from `table`.

    Fields in `given` take those values and are not keys of the table. Nested tables become the
    dataclasses of their fields. `where` names the table in messages. Raises BuildError for a
    missing key, a value of another type, or an unknown key (naming the nearest known one).
    """
    if not isinstance(table, Mapping):
        raise BuildError(f"{where} must be a table; given {table!r}")
    fields = {each.name: each for each in dataclasses.fields(kind) if each.name not in given}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    for key in table:
        if key not in fields:
            raise BuildError(unknown_key(key, tuple(fields), where))
    missing = [name for name, each in fields.items() if name not in table and _is_required(each)]
    if missing:
        raise BuildError(f"{where} lacks {missing[0]!r}")
    values = {key: _value(hints[key], value, f"{where}: {key}") for key, value in table.items()}
    return kind(**values, **given)


def unknown_key(key: str, known: tuple[str, ...], where: str) -> str:
    """Return the message for an unknown key, with its reason or the nearest known key."""
    if key in FIXED:
        return f"{where} has no key {key!r}: {FIXED[key]}"
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    advice = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(known)}"
    return f"{where} has no key {key!r}; {advice}"


def _is_required(each: dataclasses.Field[Any]) -> bool:
    absent = dataclasses.MISSING
    return each.default is absent and each.default_factory is absent


def _value(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):  # `kind | None`; TOML has no null
        return _value(arguments[0], value, where)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return from_table(typing.cast("type[Any]", hint), value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(arguments[0], each, where) for each in value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is hint:
        return value
    names = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    wanted = "a list" if origin is tuple else names.get(hint, "a table")
    wanted = "text" if hint is str else wanted
    raise BuildError(f"{where} must be {wanted}; given {value!r}")
