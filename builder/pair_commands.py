"""Sub-commands of `specdec build` that take a pair file: `check` and what follows from it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.checking import check_description
from builder.checking.text import as_data, as_text
from builder.description import load_description
from builder.errors import BuildError


@dataclass(frozen=True, slots=True)
class PairCommand:
    """One sub-command: `add_options` to its parser, `run` returns the exit status."""

    name: str
    help: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_pair_commands(commands: Any) -> None:
    """Add each of COMMANDS to the sub-parsers of `specdec build`, with `pair` as its argument."""
    for command in COMMANDS:
        parser = commands.add_parser(command.name, help=command.help, description=command.help)
        parser.add_argument("pair", help="a pair file (NAME.toml), or the name of a shipped pair")
        command.add_options(parser)
        parser.set_defaults(run=command.run)


def add_checkpoint_option(parser: argparse.ArgumentParser) -> None:
    """Add --checkpoint, which `checkpoints` reads."""
    parser.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="ENGINE=DIR",
        help="a Hugging Face directory for the target or a draft: its shape overrides the file's "
        "and is compared with it, weights and tokenizers are checked; can be given several times",
    )


def checkpoints(arguments: argparse.Namespace) -> dict[str, Path]:
    """What --checkpoint says: engine and directory. Raises BuildError."""
    found: dict[str, Path] = {}
    for each in arguments.checkpoint:
        name, separator, directory = each.partition("=")
        if not separator or not directory:
            raise BuildError(f"--checkpoint takes ENGINE=DIRECTORY; given: {each!r}")
        found[name] = Path(directory)
    return found


def _add_check_options(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_option(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def _check(arguments: argparse.Namespace) -> int:
    """Print the report; 0 if the pair can be built, else 1."""
    report = check_description(load_description(arguments.pair), checkpoints(arguments))
    print(json.dumps(as_data(report), indent=2) if arguments.json else as_text(report))
    return 0 if report.is_buildable else 1


COMMANDS = (
    PairCommand(
        "check",
        "say whether a pair can be built and will fit, before anything is",
        _add_check_options,
        _check,
    ),
)
