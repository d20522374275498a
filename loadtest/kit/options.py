"""Options that benches share, and the end of every bench: its result and its exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec.folders import default_model_repository
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.argument_types import parse_case, prompt_file
from specdec.loadtest.kit.results import RESULTS, command_line, conditions, write_result
from specdec.loadtest.load.settings import SHIPPED_PROMPTS


def bench_parser(bench: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every bench: repository, result's folder and name."""
    parser = argparse.ArgumentParser(prog=f"specdec bench {bench}", description=description)
    parser.set_defaults(bench=bench)
    parser.add_argument(
        "--model-repository",
        type=Path,
        default=default_model_repository(),
        help="Triton models to serve (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="folder of the result (default: %(default)s)"
    )
    parser.add_argument(
        "--name", default=bench, help="name of the result's files (default: %(default)s)"
    )
    return parser


def add_prompt_options(parser: argparse.ArgumentParser, *, max_tokens: int) -> None:
    """Add the file of prompts, a step through it, and the length of an answer."""
    parser.add_argument(
        "--prompts", type=prompt_file, default=SHIPPED_PROMPTS, help="JSONL file (default: ours)"
    )
    parser.add_argument(
        "--every",
        type=positive,
        default=1,
        metavar="N",
        help="take every N-th prompt (default: all)",
    )
    add_max_tokens(parser, max_tokens)


def add_max_tokens(parser: argparse.ArgumentParser, default: int) -> None:
    """Add the option for the length of an answer."""
    parser.add_argument(
        "--max-tokens",
        type=positive,
        default=default,
        metavar="N",
        help="longest answer, in tokens (default: %(default)s)",
    )


def add_case(parser: argparse.ArgumentParser) -> None:
    """Add the option for the way in which tokens are drawn."""
    parser.add_argument(
        "--case",
        type=parse_case,
        default="0",
        metavar="T[:TOP_P]",
        help="temperature, and the nucleus if there is one (default: 0, greedy)",
    )


def add_cases(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """Add the option for the ways in which tokens are drawn."""
    parser.add_argument(
        "--cases",
        type=parse_case,
        nargs="+",
        default=[parse_case(text) for text in default],
        metavar="T[:TOP_P]",
        help=f"temperatures, each perhaps with a nucleus (default: {' '.join(default)})",
    )


def finish(
    arguments: argparse.Namespace,
    argv: Sequence[str],
    facts: Mapping[str, Any],
    table: str,
    *,
    raw: Any = None,
    faults: Sequence[str] = (),
) -> int:
    """Write the result with its conditions, name the faults, and return 1 if there are any."""
    known = {"conditions": conditions(command_line(arguments.bench, argv)), **facts}
    write_result(arguments.name, arguments.out, known, table, raw)
    for fault in faults:
        print(f"BROKEN: {fault}", file=sys.stderr)
    return 1 if faults else 0


def progress(text: str) -> None:
    """Show progress on the last line of standard error, in place of the text before."""
    print(f"\r{text}", end="", file=sys.stderr, flush=True)
