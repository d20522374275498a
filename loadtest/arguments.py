"""Types of command-line options that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdec.loadtest.kit.arms import Arm, Case
from specdec.loadtest.load.prompts import load_prompts


def positive(text: str) -> int:
    """Return the whole number that `text` spells.

    Raises ArgumentTypeError below 1, and ValueError for what is no whole number.
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"1 or more, not {number}")
    return number


def prompt_file(text: str) -> Path:
    """Return the path of a file of prompts. Raises ArgumentTypeError if it cannot be read."""
    try:
        load_prompts(Path(text))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return Path(text)


def parse_case(text: str) -> Case:
    """Return the way of drawing that `text` names. Raises ArgumentTypeError if it names none."""
    try:
        return Case.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"a temperature or T:TOP_P is needed, such as 0.7:0.9, not {text!r}"
        ) from None


def parse_arm(text: str) -> str:
    """Return `text` if it names an arm. Raises ArgumentTypeError if it does not."""
    try:
        Arm.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"the draft tokens after the colon are a whole number, as in draft:4, not {text!r}"
        ) from None
    return text
