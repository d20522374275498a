"""The option for the repository, which several commands have."""

from __future__ import annotations

import argparse
from pathlib import Path

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
