"""Copying the shipped models, which have a configuration and a model.py, but no weights."""

from __future__ import annotations

import shutil
from pathlib import Path

from specdec.folders import SHIPPED_MODELS


def copy_model(name: str, repository: Path) -> Path:
    """Copy a shipped model to `repository`, which must not have it, and return its folder."""
    shipped, model = SHIPPED_MODELS / name, repository / name
    (model / "1").mkdir(parents=True)
    shutil.copyfile(shipped / "config.pbtxt", model / "config.pbtxt")
    shutil.copyfile(shipped / "1" / "model.py", model / "1" / "model.py")
    return model


def copy_missing_models(repository: Path) -> None:
    """Copy the shipped models that `repository` lacks; those that it has may have been changed."""
    for shipped in sorted(SHIPPED_MODELS.iterdir()):
        if not (repository / shipped.name).exists():
            copy_model(shipped.name, repository)
