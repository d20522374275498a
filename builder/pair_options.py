"""Options that complete a pair file on the command line, for all commands that take one."""

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
"""Names the checkpoint of [self_speculation]."""


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


def add_pair_options(parser: argparse.ArgumentParser) -> None:
    """Add --checkpoint and --version, which `asked_pair` reads."""
    add_checkpoint_option(parser)
    parser.add_argument(
        "--version", metavar="X.Y.Z", help="of TensorRT-LLM (default: what the pair file says)"
    )


def asked_pair(arguments: argparse.Namespace) -> PairDescription:
    """The described pair with what the command line says of it, checked.

    Raises BuildError with everything that the checks call an error.
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
