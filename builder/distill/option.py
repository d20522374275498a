"""Fields of settings that are options of a training command."""

from __future__ import annotations

from dataclasses import field
from typing import TypeVar

Value = TypeVar("Value")


def option(
    default: Value,
    text: str,
    *,
    choices: tuple[Value, ...] | None = None,
    smoke: Value | None = None,
) -> Value:
    """Return a field of a frozen dataclass; `text` is the help of its option.

    `smoke` is its value with --smoke, if that is another one than the default.
    """
    metadata = {"help": text, "choices": choices, "smoke": default if smoke is None else smoke}
    made: Value = field(default=default, metadata=metadata)
    return made
