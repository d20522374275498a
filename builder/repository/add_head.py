"""`specdec build add-head`: give the target a head, which drafts from its hidden states."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdec.builder.checkpoints.files import read_config
from specdec.builder.config_file import set_parameters
from specdec.builder.errors import BuildError
from specdec.builder.repository.names import check_drafter_name
from specdec.builder.repository.options import add_repository_option
from specdec.builder.repository.weights import HEAD, WEIGHTS, fill_head


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `add-head` to the parser."""
    parser.add_argument("name", help="the head's name, by which requests choose it as drafter")
    parser.add_argument("checkpoint", type=Path, help="its folder: config.json and weights")
    add_repository_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Add the head and return 0. Raises BuildError if that fails."""
    architecture = add_head(arguments.model_repository, arguments.name, arguments.checkpoint)
    print(f"{arguments.name}: {architecture}, which drafts from the target's hidden states")
    return 0


def add_head(repository: Path, name: str, head: Path) -> str:
    """Give the target of `repository` the head in the folder `head`; requests name it `name`.

    Returns the head's architecture, as in its config.json. Raises BuildError for a reserved or
    invalid name, a head that is incomplete or made for another target, and a repository whose
    target has no weights.
    """
    check_drafter_name("a head", name)
    target, output = repository / "target" / WEIGHTS, repository / "target" / HEAD
    if not target.is_dir():
        raise BuildError(f"{target} has no weights: run `specdec build pair` first")
    fill_head(head, target, output)
    set_parameters(repository / "target", head_dir=HEAD.name)
    set_parameters(repository / "specdec", target_head_name=name)
    return str(read_config(output)["architectures"][0])
