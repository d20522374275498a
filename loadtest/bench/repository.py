"""A copy of a model repository in which other models draft as well."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from builder.add_draft import add_draft
from builder.assembly import WEIGHTS
from builder.vocabulary import TRANSLATIONS


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
        if (model / WEIGHTS).exists():
            (copy / WEIGHTS).symlink_to((model / WEIGHTS).resolve())
    for name, checkpoint in checkpoints:
        print(f"{name}: {add_draft(directory, name, Path(checkpoint), translation=translation)}")
    return directory
