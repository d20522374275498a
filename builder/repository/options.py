"""The option --model-repository, which several commands have."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_repository_option(parser: argparse.ArgumentParser) -> None:
    """Add --model-repository to the parser."""
    parser.add_argument(
        "--model-repository",
        type=Path,
        default=Path("model_repository"),
        metavar="DIR",
        help="default: %(default)s",
    )
