"""Command-line options that complete a pair file, shared by all commands that read one."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from builder.checking import check_description
from builder.checking.findings import ERROR
from builder.checking.versions import VERSION_OF
from builder.description import PairDescription, Runtime, load_description
from builder.errors import BuildError

HEAD = "head"
"""Name in --checkpoint for the head of [self_speculation]."""


def add_checkpoint_option(parser: argparse.ArgumentParser) -> None:
    """Add --checkpoint to the parser, to be read by `checkpoints`."""
    parser.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="ENGINE=DIR",
        help="a Hugging Face directory for the target or a draft: its shape overrides the file's "
        "and is compared with it, weights and tokenizers are checked; can be given several times",
    )


def checkpoints(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the directory of each engine in --checkpoint. Raises BuildError for bad syntax."""
    found: dict[str, Path] = {}
    for each in arguments.checkpoint:
        name, separator, directory = each.partition("=")
        if not separator or not directory:
            raise BuildError(f"--checkpoint takes ENGINE=DIRECTORY; given: {each!r}")
        found[name] = Path(directory)
    return found


def add_pair_options(parser: argparse.ArgumentParser) -> None:
    """Add --checkpoint and --version to the parser, to be read by `asked_pair`."""
    add_checkpoint_option(parser)
    parser.add_argument(
        "--version", metavar="X.Y.Z", help="of TensorRT-LLM (default: what the pair file says)"
    )


def asked_pair(arguments: argparse.Namespace) -> PairDescription:
    """Return the pair with the changes from the command line, after all checks.

    --version also chooses the newest container with that release, if one is known. Raises
    BuildError with all errors that the checks found.
    """
    pair, given = load_description(arguments.pair), checkpoints(arguments)
    head = given.pop(HEAD, None)
    if head is not None:
        if pair.self_speculation is None:
            raise BuildError(f"{pair.name} has no [self_speculation] that a head could belong to")
        own = replace(pair.self_speculation, checkpoint=head.resolve())
        pair = replace(pair, self_speculation=own)
    if arguments.version is not None:
        containers = [name for name, held in VERSION_OF.items() if held == arguments.version]
        container = containers[-1] if containers else pair.runtime.container
        pair = replace(pair, runtime=Runtime(arguments.version, container))
    resolved = {name: directory.resolve() for name, directory in given.items()}
    report = check_description(pair, resolved)
    wrong = [each for each in report.findings if each.severity == ERROR]
    if wrong:
        listed = "\n".join(f"- {each.message}: {each.remedy}" for each in wrong)
        raise BuildError(f"{pair.name} cannot be built:\n{listed}")
    return report.pair
