"""Fields of settings that are options of a training command."""

from __future__ import annotations

from dataclasses import field
from typing import TypeVar

Value = TypeVar("Value")


def option(default: Value, text: str, *, choices: tuple[Value, ...] | None = None) -> Value:
    """Return a field of a frozen dataclass; `text` is the help of its option."""
    made: Value = field(default=default, metadata={"help": text, "choices": choices})
    return made
