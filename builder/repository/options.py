"""The arguments that several commands have: the repository, and a drafter's name."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from specdec.builder.errors import BuildError
from specdec.drafting.registry import RESERVED
from specdec.folders import default_model_repository


def add_repository_option(parser: argparse.ArgumentParser) -> None:
    """Add --model-repository to the parser."""
    parser.add_argument(
        "--model-repository",
        type=Path,
        default=default_model_repository(),
        metavar="DIR",
        help="default: model_repository if it exists, else the one that `specdec serve` uses "
        "(%(default)s)",
    )


def check_drafter_name(what: str, name: str) -> None:
    """Raise BuildError if requests could not name a new drafter so; `what` is for the message."""
    if name in RESERVED or not re.fullmatch(r"[\w.-]+", name):
        raise BuildError(f"{what} cannot be named {name!r}: the name is reserved or malformed")
