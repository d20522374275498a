"""A copy of a model repository, changed: other models draft as well, other parameters hold."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from builder.description.engine import TRANSLATIONS
from builder.parameters import set_parameters
from builder.repository.add_draft import add_draft
from builder.repository.colocate import colocate
from builder.repository.weights import HEAD, WEIGHTS

COLOCATED = "colocated"


def add_draft_options(parser: argparse.ArgumentParser) -> None:
    """Let a bench serve more draft models than the repository has."""
    parser.add_argument(
        "--draft",
        nargs=2,
        action="append",
        metavar=("NAME", "CHECKPOINT"),
        help="serve one more draft model, under the name by which arms ask for it",
    )
    parser.add_argument(
        "--translation",
        choices=TRANSLATIONS,
        help="of added drafts with another vocabulary (default: as the vocabularies suggest)",
    )


def with_drafts(
    repository: Path,
    directory: Path,
    checkpoints: Sequence[tuple[str, str]],
    translation: str | None = None,
) -> Path:
    """Copy `repository` into `directory`, weights linked, and add (name, checkpoint) as drafts."""
    for model in (each for each in repository.iterdir() if (each / "config.pbtxt").exists()):
        copy = directory / model.name
        (copy / "1").mkdir(parents=True)
        shutil.copy(model / "config.pbtxt", copy)
        shutil.copy(model / "1" / "model.py", copy / "1")
        # Of an engine, of its head; of co-located ones.
        for weights in (WEIGHTS, HEAD, Path("checkpoints")):
            if (model / weights).exists():
                (copy / weights).symlink_to((model / weights).resolve())
    for name, checkpoint in checkpoints:
        print(f"{name}: {add_draft(directory, name, Path(checkpoint), translation=translation)}")
    return directory


def add_colocated(repository: Path, directory: Path, name: str = COLOCATED) -> None:
    """One more orchestrator in a repository of our own, with engines in its own process.

    `directory` is a place for scratch on the same file system.
    """
    colocate(repository, directory / "alone")
    (directory / "alone" / "specdec").rename(repository / name)
    config = repository / name / "config.pbtxt"
    renamed = config.read_text("utf-8").replace('name: "specdec"', f'name: "{name}"', 1)
    config.write_text(renamed, "utf-8")


def add_front_door(repository: Path, name: str, **parameters: str) -> None:
    """Add another orchestrator over the same engines, with other parameters."""
    shutil.copytree(repository / "specdec", repository / name)
    path = repository / name / "config.pbtxt"
    path.write_text(path.read_text("utf-8").replace('name: "specdec"', f'name: "{name}"'), "utf-8")
    set_parameters(repository / name, **parameters)
