"""Options that benches share, and the end of every bench: its result and its exit status."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec.folders import default_model_repository
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.arms import Arm, Case
from specdec.loadtest.kit.results import RESULTS, command_line, conditions, write_result
from specdec.loadtest.load.prompts import Prompt, load_prompts
from specdec.loadtest.load.settings import SHIPPED_PROMPTS


def bench_parser(
    bench: str, description: str | None, *, has_models: bool = True, has_result: bool = True
) -> argparse.ArgumentParser:
    """Return a parser with the model repository, and the folder and name of the result.

    `has_models` and `has_result` tell which of them the bench uses.
    """
    parser = argparse.ArgumentParser(prog=f"specdec bench {bench}", description=description)
    parser.set_defaults(bench=bench)
    if has_models:
        parser.add_argument(
            "--model-repository",
            type=Path,
            default=default_model_repository(),
            help="Triton models to measure (default: %(default)s)",
        )
    if has_result:
        parser.add_argument(
            "--out", type=Path, default=RESULTS, help="folder of the result (default: %(default)s)"
        )
        parser.add_argument(
            "--name", default=bench, help="name of the result's files (default: %(default)s)"
        )
    return parser


def add_prompts(parser: argparse.ArgumentParser) -> None:
    """Add the option for a file of prompts."""
    parser.add_argument(
        "--prompts", type=read_prompts, default=str(SHIPPED_PROMPTS), help="JSONL (default: ours)"
    )


def add_prompt_options(parser: argparse.ArgumentParser, *, max_tokens: int) -> None:
    """Add the file of prompts, a step through it, and the length of an answer."""
    add_prompts(parser)
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


def read_prompts(text: str) -> tuple[Prompt, ...]:
    """Return the prompts of a file. Raises ArgumentTypeError if it cannot be read."""
    try:
        return load_prompts(Path(text))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_numbers(
    parser: argparse.ArgumentParser, option: str, default: Sequence[int], meaning: str
) -> None:
    """Add an option for one or more counts."""
    parser.add_argument(
        option,
        type=positive,
        nargs="+",
        default=list(default),
        metavar="N",
        help=f"{meaning} (default: {' '.join(map(str, default))})",
    )


def add_case(parser: argparse.ArgumentParser) -> None:
    """Add the option for the case, which says how tokens are drawn."""
    parser.add_argument(
        "--case",
        type=parse_case,
        default="0",
        metavar="T[:TOP_P]",
        help="temperature, and the nucleus if there is one (default: 0, greedy)",
    )


def add_cases(parser: argparse.ArgumentParser, default: Sequence[str]) -> None:
    """Add the option for several cases."""
    parser.add_argument(
        "--cases",
        type=parse_case,
        nargs="+",
        default=[parse_case(text) for text in default],
        metavar="T[:TOP_P]",
        help=f"temperatures, each perhaps with a nucleus (default: {' '.join(default)})",
    )


def parse_case(text: str) -> Case:
    """Return the case that `text` names. Raises ArgumentTypeError if it names none."""
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
    """Show progress on the last line of a terminal, in place of the text before; none in a pipe."""
    if sys.stderr.isatty():
        print(f"\r{text}", end="", file=sys.stderr, flush=True)
