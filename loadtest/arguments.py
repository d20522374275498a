"""The type of options that are counts; `load` uses it too, which may not import `kit`."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """Return the whole number that `text` spells.

    Raises ArgumentTypeError below 1, and ValueError for what is no whole number.
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"1 or more, not {number}")
    return number
