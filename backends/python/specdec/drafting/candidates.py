"""The drafters among which the controller chooses, besides copies."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.drafting.models.head import HeadShape
from specdec.drafting.protocol import Drafter
from specdec.steering.choices import Candidate


@dataclass(frozen=True, slots=True)
class EngineCandidate:
    """A draft engine that the controller may choose."""

    candidate: Candidate
    """The engine's name and the draft lengths that the controller may choose."""
    drafter: Drafter
    """Drafter that asks the engine."""


@dataclass(frozen=True, slots=True)
class HeadCandidate:
    """The target's head as a chain or as a tree, which the controller may choose."""

    candidate: Candidate
    """The drafter's name, its depth, and the draft lengths that the controller may choose."""
    shape: HeadShape
    """Chain or tree to ask of the head."""
