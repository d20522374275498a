"""Types of the options that name prompts, arms and ways of drawing."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdec.loadtest.kit.arms import Arm, Case
from specdec.loadtest.load.prompts import load_prompts


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


def arm_text(text: str) -> str:
    """Return `text` if it names an arm; measurements have this text as the arm's name.

    Raises ArgumentTypeError if it names none.
    """
    try:
        Arm.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"the draft tokens after the colon are a whole number, as in draft:4, not {text!r}"
        ) from None
    return text
