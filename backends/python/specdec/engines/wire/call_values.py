"""Read single values from the arrays of an engine call, and check each against its limits.

Functions with limits raise InvalidRequestError for a value outside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from specdec.errors import InvalidRequestError

Arrays = Mapping[str, npt.NDArray[Any]]
"""Inputs by name, without the batch dimension."""


def scalar(arrays: Arrays, name: str, default: Any) -> Any:
    """Return the value of an input with one element, `default` if it is absent."""
    if name not in arrays:
        return default
    value = arrays[name].ravel()[0]
    return value if isinstance(value, bytes) else value.item()


def either(arrays: Arrays, name: str, older_name: str, maximum: int) -> int:
    """Return an integer from 0 on of an input with two names."""
    return integer(arrays, name if name in arrays else older_name, 0, maximum)


def integer(arrays: Arrays, name: str, minimum: int, maximum: int) -> int:
    """Return an integer, `minimum` if it is absent."""
    value = int(scalar(arrays, name, minimum))
    if not minimum <= value <= maximum:
        raise InvalidRequestError(f"{name} must lie from {minimum} to {maximum}; given {value}")
    return value


def optional_integer(arrays: Arrays, name: str, minimum: int) -> int | None:
    """Return an integer, None if it is absent."""
    return integer(arrays, name, minimum, 2**31 - 1) if name in arrays else None


def number(arrays: Arrays, name: str, default: float, minimum: float, maximum: float) -> float:
    """Return a finite number, `default` if it is absent."""
    value = float(scalar(arrays, name, default))
    if not (math.isfinite(value) and minimum <= value <= maximum):
        raise InvalidRequestError(
            f"{name} must be a finite number from {minimum:g} to {maximum:g}; given {value:g}"
        )
    return value


def text(arrays: Arrays, name: str) -> str:
    """Return a text, empty if it is absent. Raises InvalidRequestError if it is not UTF-8."""
    try:
        return str(scalar(arrays, name, b"").decode())
    except UnicodeDecodeError:
        raise InvalidRequestError(f"{name} must be a UTF-8 text") from None
