"""Which version of a model a server serves: the highest, by `version_policy: latest`."""

from __future__ import annotations

from pathlib import Path

CHECKPOINT, HEAD, ENGINE = "checkpoint", "head", "engine"
"""Folders of a version: the model's weights (beside a compiled engine, what is known of them),
those of a head that drafts on its states, and what TensorRT-LLM has compiled."""


def versions(model: Path) -> list[Path]:
    """The version directories of a model, lowest first, named as Triton reads them."""
    try:
        found = [each for each in model.iterdir() if each.is_dir() and _is_version(each.name)]
    except OSError:
        return []
    return sorted(found, key=lambda each: int(each.name))


def served_version(model: Path) -> Path | None:
    """The version directory that is served; None where there is none."""
    return next(reversed(versions(model)), None)


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and not name.startswith("0")
