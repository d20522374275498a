"""The state of a training run in a file, from which a killed run resumes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from specdec.builder.errors import BuildError

BEST, LAST = "best.pt", "last.pt"
"""Files of a run's best state and of its last one."""


@dataclass(frozen=True)
class RunState:
    """The draft's weights, and how far its training has come."""

    weights: dict[str, Any]
    """State of the trained module."""
    settings: dict[str, Any]
    """Settings of the run."""
    step: int
    spent_s: float
    """Seconds of training so far, evaluations left out."""
    best_tau: float
    """Most tokens per round in an evaluation so far."""
    curve: list[dict[str, float]]
    """Figures of each evaluation."""
    optimizers: list[dict[str, Any]] | None = None
    """States of the optimizers; None in the file BEST, which nothing resumes."""

    def save(self, path: Path) -> None:
        """Write the state to `path`, which is never half written."""
        partial = path.with_name(f"{path.name}.partial")
        torch.save({name: getattr(self, name) for name in self.keys()}, partial)
        partial.rename(path)

    @classmethod
    def load(cls, path: Path, device: torch.device | str = "cpu") -> RunState:
        """Return the state in `path`, with tensors on `device`.

        Raises BuildError for a file of another release.
        """
        found = torch.load(path, map_location=device, weights_only=True)
        if found.keys() != set(cls.keys()):
            raise BuildError(f"{path} is from another release; start the run again in a new folder")
        return cls(**found)

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return the keys of a file, by which files of other releases are recognized."""
        return tuple(each.name for each in fields(cls))
