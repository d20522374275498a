"""`specdec build pair`: fill the model repository with the weights of a shipped pair."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdec.builder.checking.compatibility import check_pair
from specdec.builder.hashes import directory_sha256
from specdec.builder.importing.cli import add_download_options
from specdec.builder.importing.conversion import import_model
from specdec.builder.outputs import is_current, replaced, reported
from specdec.builder.repository.options import add_repository_option
from specdec.builder.repository.pair_weights import DEFAULT_PAIR, Pair, load_pair
from specdec.builder.repository.shipped import copy_missing_models
from specdec.builder.repository.weights import (
    ASSEMBLY_FORMAT,
    HEAD,
    WEIGHTS,
    assemble_draft,
    fill_head,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pair` to the parser."""
    parser.add_argument("name", nargs="?", default=DEFAULT_PAIR, help="default: %(default)s")
    add_repository_option(parser)
    add_download_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Fill the repository and return 0. Raises BuildError if that fails."""
    pair = load_pair(arguments.name)
    build_pair(pair, arguments.model_repository, arguments.cache, force=arguments.force)
    return 0


def build_pair(pair: Pair, model_repository: Path, cache: Path, *, force: bool = False) -> None:
    """Write the weights of target, head and draft into the model repository.

    Shipped models that the repository lacks are copied to it. Directories that were made from the
    same input are kept, unless `force` is set. If the pair's draft is not stored yet, a notice is
    printed and it is left out. `cache` is the folder for downloads. Raises BuildError if weights
    cannot be downloaded, or draft or head does not fit.
    """
    copy_missing_models(model_repository)
    target = model_repository / "target" / WEIGHTS
    draft = model_repository / "draft" / WEIGHTS
    made_target = import_model(pair.target, target, cache, force=force)
    if pair.head is not None:
        fill_head(pair.head.directory, target, model_repository / "target" / HEAD, force=force)
    if pair.draft is None:
        return
    if not (pair.draft.directory / "config.json").is_file():
        print(f"notice: the pair {pair.name} has no stored draft yet; {draft} is left out")
        return
    made_from = {
        "draft": directory_sha256(pair.draft.directory),
        "target": pair.target.source.sha256,
        "format": ASSEMBLY_FORMAT,
    }
    if not made_target and not force and is_current(draft, made_from):
        print(f"{draft}: up to date ({pair.draft.name})")
        return
    with reported(draft, pair.draft.name), replaced(draft, made_from) as new:
        assemble_draft(pair.draft.directory, target, new)
        report = check_pair(target, new)
    print(
        f"pair {pair.name}: draft {report.num_draft_parameters / 1e6:.1f}M parameters, target "
        f"{report.num_target_parameters / 1e6:.1f}M ({report.size_ratio:.0%}), "
        f"vocabulary {report.vocab_size}"
    )
