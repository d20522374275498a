"""Mask and rename texts in JSON values: messages and tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

MASK = "\ue000"
"""Character that replaces masked text. It is for private use, so no special token contains it."""


def mask_all(text: str) -> str:
    """Return a text with all characters masked but white space."""
    return "".join(each if each.isspace() else MASK for each in text)


def masking(specials: Sequence[str]) -> Callable[[str], str]:
    """Return a function that masks `specials` in a text and keeps the text's length."""

    def mask(text: str) -> str:
        for special in specials:
            text = text.replace(special, MASK * len(special))
        return text

    return mask


def outside(kept: Sequence[str], mask: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that applies `mask` to a text, except to the strings in `kept`."""
    if not kept:
        return mask
    pattern = re.compile(f"({'|'.join(map(re.escape, kept))})")
    return lambda text: "".join(
        each if each in kept else mask(each) for each in pattern.split(text)
    )


ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Values of a message's field `role` that chat templates know. They are not masked."""


def strings(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value, except the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from strings(list(value.values()))
    elif isinstance(value, Sequence):
        for each in value:
            yield from strings(each)


def names_of(value: Any) -> Iterator[str]:
    """Yield the names of all fields in a JSON value."""
    if isinstance(value, Mapping):
        yield from map(str, value)
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        for each in value:
            yield from names_of(each)


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with `change` applied to every string in it.

    The names of fields and the roles that templates know stay as they are.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {
            key: each if key == "role" and each in ROLES else mapped(each, change)
            for key, each in value.items()
        }
    if isinstance(value, Sequence):
        return [mapped(each, change) for each in value]
    return value


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a JSON value whose fields have other names."""
    if isinstance(value, Mapping):
        return {names.get(key, key): renamed(each, names) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [renamed(each, names) for each in value]
    return value
