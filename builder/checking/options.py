"""Command-line options that complete a pair file, shared by all commands that read one."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from specdec.builder.checking.check import check_description
from specdec.builder.checking.findings import ERROR
from specdec.builder.checking.versions import VERSION_OF
from specdec.builder.description import PairDescription, Runtime, load_description
from specdec.builder.errors import BuildError


def add_checkpoint_options(parser: argparse.ArgumentParser) -> None:
    """Add the argument `pair` and --checkpoint to the parser, to be read by `checkpoints`."""
    parser.add_argument("pair", help="a pair file (NAME.toml), or the name of a shipped pair")
    parser.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="ENGINE=DIR",
        help="a Hugging Face directory for the target, a draft, or the head of [self_speculation] "
        "(head=DIR): its sizes override those of the file and are compared with them; weights and "
        "tokenizers are checked; can be given several times",
    )


def checkpoints(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the directory of each engine in --checkpoint. Raises BuildError for bad syntax."""
    found: dict[str, Path] = {}
    for each in arguments.checkpoint:
        name, separator, directory = each.partition("=")
        if not separator or not directory:
            raise BuildError(f"--checkpoint takes ENGINE=DIRECTORY; given {each!r}")
        found[name] = Path(directory).resolve()
    return found


def add_pair_options(parser: argparse.ArgumentParser) -> None:
    """Add the argument `pair`, --checkpoint and --version, to be read by `checked_pair`."""
    add_checkpoint_options(parser)
    parser.add_argument(
        "--version", metavar="X.Y.Z", help="of TensorRT-LLM (default: what the pair file says)"
    )


def checked_pair(arguments: argparse.Namespace) -> PairDescription:
    """Return the pair with the changes from the command line, after all checks.

    --version also chooses the newest container with that release, if one is known. Raises
    BuildError with all errors that the checks found.
    """
    pair = load_description(arguments.pair)
    if arguments.version is not None:
        containers = [name for name, held in VERSION_OF.items() if held == arguments.version]
        container = containers[-1] if containers else pair.runtime.container
        pair = replace(pair, runtime=Runtime(arguments.version, container))
    report = check_description(pair, checkpoints(arguments))
    errors = [each for each in report.findings if each.severity == ERROR]
    if errors:
        listed = "\n".join(f"- {each.message}: {each.remedy}" for each in errors)
        raise BuildError(f"{pair.name} cannot be built:\n{listed}")
    return report.pair
