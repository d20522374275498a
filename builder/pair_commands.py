"""`specdec build check|compile|render PAIR`: the sub-commands that take a pair file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from builder.rendering import cli as rendering_cli
from builder.tensorrt_llm import cli as tensorrt_llm_cli

Command = Callable[[argparse.Namespace], int]


def add_pair_commands(commands: Any) -> None:
    """Add each of COMMANDS to the sub-parsers of `specdec build`; `run` is what to call."""
    for name, (describe, run, summary) in COMMANDS.items():
        parser = commands.add_parser(name, help=summary)
        parser.add_argument("pair", help="a pair file, or the name of a shipped pair")
        describe(parser)
        parser.set_defaults(run=run)


COMMANDS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], Command, str]] = {
    "compile": (
        tensorrt_llm_cli.describe,
        tensorrt_llm_cli.run,
        "engines by TensorRT-LLM, resumed where a run before stopped",
    ),
    "render": (
        rendering_cli.describe,
        rendering_cli.run,
        "a whole model repository, with its manifest and the line that starts it",
    ),
}
"""Name: (adds options, runs and returns the exit status, one line of help)."""
