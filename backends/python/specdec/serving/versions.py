"""Find the version of a model that Triton serves: the highest, by `version_policy: latest`."""

from __future__ import annotations

from pathlib import Path

CHECKPOINT, HEAD, ENGINE = "checkpoint", "head", "engine"
"""Folders of a version: the model's weights, those of a head that drafts from its states, and the
engine that TensorRT-LLM compiled. With a compiled engine the first holds records of its weights."""


def versions(model: Path) -> list[Path]:
    """Return the version directories of a model, the lowest first; none if it does not exist.

    As for Triton, a version is a number without leading zero.
    """
    try:
        found = [each for each in model.iterdir() if each.is_dir() and _is_version(each.name)]
    except OSError:
        return []
    return sorted(found, key=lambda each: int(each.name))


def served_version(model: Path) -> Path | None:
    """Return the version directory that is served; None if the model has none."""
    return next(reversed(versions(model)), None)


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and not name.startswith("0")
