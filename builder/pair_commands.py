"""The sub-commands of `specdec build` that read a pair file: check, compile and render."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from builder.checking import check_description
from builder.checking.text import as_data, as_text
from builder.description import load_description
from builder.pair_options import add_checkpoint_option, checkpoints
from builder.rendering import cli as rendering_cli
from builder.tensorrt_llm import cli as tensorrt_llm_cli


@dataclass(frozen=True, slots=True)
class PairCommand:
    """A sub-command. `add_options` fills its parser; `run` returns the exit status."""

    name: str
    help: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_pair_commands(commands: Any) -> None:
    """Add COMMANDS to the sub-parsers of `specdec build`, each with an argument `pair`."""
    for command in COMMANDS:
        parser = commands.add_parser(command.name, help=command.help, description=command.help)
        parser.add_argument("pair", help="a pair file (NAME.toml), or the name of a shipped pair")
        command.add_options(parser)
        parser.set_defaults(run=command.run)


def _add_check_options(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_option(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def _check(arguments: argparse.Namespace) -> int:
    """Print the report; return 0 if the pair can be built, else 1."""
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
    PairCommand(
        "compile",
        "make a pair's engines by TensorRT-LLM; what is done already is kept",
        tensorrt_llm_cli.add_options,
        tensorrt_llm_cli.run,
    ),
    PairCommand(
        "render",
        "write a whole model repository, with its manifest and the line that starts it",
        rendering_cli.add_options,
        rendering_cli.run,
    ),
)
