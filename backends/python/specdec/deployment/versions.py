"""Find the version of a model that Triton serves: the highest, as `version_policy: latest` says."""

from __future__ import annotations

from pathlib import Path

CHECKPOINT, HEAD, ENGINE = "checkpoint", "head", "engine"
"""Folders in a version directory: the model's weights, its head's weights, and the engine that
TensorRT-LLM compiled. For a compiled engine, CHECKPOINT has only records of the weights."""


def versions(model: Path) -> list[Path]:
    """Return the version directories of a model, the lowest first; empty if it does not exist.

    As in Triton, a version is a number without leading zeros.
    """
    try:
        found = [each for each in model.iterdir() if each.is_dir() and _is_version(each.name)]
    except OSError:
        return []
    return sorted(found, key=lambda each: int(each.name))


def served_version(model: Path) -> Path | None:
    """Return the version directory that Triton serves; None if the model has none."""
    return next(reversed(versions(model)), None)


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and not name.startswith("0")
