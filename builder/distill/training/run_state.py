"""The state of a training run in a file, from which a killed run resumes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

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
        torch.save({each.name: getattr(self, each.name) for each in fields(self)}, partial)
        partial.rename(path)

    @classmethod
    def load(cls, path: Path, device: torch.device | str = "cpu") -> RunState:
        """Return the state in `path`, with tensors on `device`."""
        return cls(**torch.load(path, map_location=device, weights_only=True))
