"""Copies of a model repository with more draft models, orchestrators or other parameters."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from specdec.builder.config_file import ConfigFile
from specdec.builder.description.engine import TRANSLATIONS
from specdec.builder.repository.add_draft import add_draft
from specdec.builder.repository.colocate import colocate
from specdec.builder.repository.weights import HEAD, WEIGHTS
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.kit.arms import Arm

COLOCATED = "colocated"
CHECKPOINTS = Path("checkpoints")
"""Folder of an orchestrator's engines in its own process."""


def add_draft_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of benches that can serve further draft models."""
    parser.add_argument(
        "--draft",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "CHECKPOINT"),
        help="serve one more draft model under this name, by which arms ask for it",
    )
    parser.add_argument(
        "--translation",
        choices=TRANSLATIONS,
        help="translation for added draft models with another vocabulary (default: automatic)",
    )


@contextmanager
def serve_with_drafts(arguments: argparse.Namespace) -> Iterator[TritonServer]:
    """Serve the repository that the options name, with their further draft models if any."""
    with TemporaryDirectory(prefix="specdec.") as scratch:
        repository = arguments.model_repository
        if arguments.draft:
            repository = with_drafts(
                repository, Path(scratch), arguments.draft, arguments.translation
            )
        with TritonServer(repository) as server:
            yield server


def with_colocated(repository: Path, arms: Iterable[str], directory: Path) -> Path:
    """Return `repository`, or a copy with one more orchestrator if an arm asks for it.

    That orchestrator has the engines in its own process. The copy goes into the empty `directory`.
    """
    if all(Arm.parse(arm).model != COLOCATED for arm in arms):
        return repository
    copy = with_drafts(repository, directory / "repository")
    colocate(copy, directory / "alone")
    own = (directory / "alone" / "specdec").rename(copy / COLOCATED)
    ConfigFile.read(own).with_name(COLOCATED).write(own)
    return copy


def with_drafts(
    repository: Path,
    directory: Path,
    checkpoints: Sequence[tuple[str, str]] = (),
    translation: str | None = None,
) -> Path:
    """Copy `repository` into `directory`, with links to its weights, and return the copy.

    `checkpoints` has name and checkpoint of each draft model to add.
    """
    for model in (each for each in repository.iterdir() if (each / "config.pbtxt").exists()):
        copy = directory / model.name
        (copy / "1").mkdir(parents=True)
        shutil.copy(model / "config.pbtxt", copy)
        shutil.copy(model / "1" / "model.py", copy / "1")
        for weights in (WEIGHTS, HEAD, CHECKPOINTS):
            if (model / weights).exists():
                (copy / weights).symlink_to((model / weights).resolve())
    for name, checkpoint in checkpoints:
        print(f"{name}: {add_draft(directory, name, Path(checkpoint), translation=translation)}")
    return directory
