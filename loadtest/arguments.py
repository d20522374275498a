"""Kinds of command-line options that several commands take."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A whole number, 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"1 or more, not {number}")
    return number
