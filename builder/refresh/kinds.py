"""The kinds of draft that can be refreshed: draft models, and heads of the target."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from builder.distill import checkpoint as draft_checkpoints
from builder.distill.student import Student, shape_of
from builder.distill.student_learner import StudentLearner
from builder.distill.train import Learner, TrainSettings
from builder.errors import BuildError
from builder.heads import checkpoint as head_checkpoints
from builder.heads.eagle3 import Eagle3
from builder.heads.learner import HeadLearner
from builder.heads.target import target_ends
from specdec.serving.versions import CHECKPOINT, HEAD

_UNREADABLE = (OSError, KeyError, ValueError, RuntimeError)


class Kind(Protocol):
    """Reading, training and writing of one kind of draft.

    In the methods, `folder` holds the draft's weights and `target` is the target's checkpoint.
    """

    @property
    def folder(self) -> str:
        """Folder of a model version that a refresh replaces: CHECKPOINT or HEAD."""

    @property
    def reads_states(self) -> bool:
        """Whether training needs the target's hidden states as well as its answers."""

    def served(self, folder: Path, target: Path, how: TrainSettings) -> Learner:
        """Return the draft as it is served. Raises BuildError if it cannot be trained further."""

    def continued(self, folder: Path, target: Path, how: TrainSettings) -> Learner:
        """Return the draft for training, with the parts it copies from its target taken anew.

        Raises BuildError if it cannot be trained further for this target.
        """

    def write(self, learner: Learner, target: Path, notes: dict[str, Any], out: Path) -> None:
        """Write the folder `out` that engines load; `notes` go into its config.json."""


@dataclass(frozen=True)
class DraftModel:
    """The kind of draft model that `specdec build distill` makes."""

    folder: str = CHECKPOINT
    reads_states: bool = False

    def served(self, folder: Path, target: Path, how: TrainSettings) -> Learner:  # noqa: ARG002
        return StudentLearner(_student(folder), how.loss)

    def continued(self, folder: Path, target: Path, how: TrainSettings) -> Learner:
        student = _student(folder)
        embed, _ = target_ends(target)
        _check_shape(student.embed, embed)
        is_targets = torch.equal(student.lm_head.weight, student.embed[student.draft_ids])
        student.embed.copy_(embed)
        # Output rows begin as the embedding's. Untrained ones equal it still and follow the target.
        _own_rows(student.lm_head.weight, embed[student.draft_ids] if is_targets else None)
        return StudentLearner(student.train(), how.loss)

    def write(self, learner: Learner, target: Path, notes: dict[str, Any], out: Path) -> None:
        student = learner.module.cpu()
        assert isinstance(student, Student)
        stored = out.with_name(f"{out.name}.stored")
        draft_checkpoints.store(student, target, stored, notes)
        draft_checkpoints.assemble(stored, target, out)


@dataclass(frozen=True)
class TargetHead:
    """The kind of head that `build eagle3` and `build medusa` make, or one of the same layout."""

    folder: str = HEAD
    reads_states: bool = True

    def served(self, folder: Path, target: Path, how: TrainSettings) -> Learner:
        return self._learner(_head(folder, target), target, how)

    def continued(self, folder: Path, target: Path, how: TrainSettings) -> Learner:
        head = _head(folder, target)
        training = json.loads((folder / "config.json").read_text("utf-8")).get("training", {})
        is_targets = not training.get("train_head", True)
        rows = target_ends(target)[1][head.draft_ids]
        _own_rows(head.lm_head.weight, rows if is_targets else None)
        return self._learner(head.train(), target, how)

    def write(self, learner: Learner, target: Path, notes: dict[str, Any], out: Path) -> None:
        head: Any = learner.module.cpu()
        kind = "eagle3" if isinstance(head, Eagle3) else "medusa"
        training = {"train_head": head.lm_head.weight.requires_grad}
        head_checkpoints.store(kind, head, target, out, {"training": training, **notes})

    @staticmethod
    def _learner(head: Any, target: Path, how: TrainSettings) -> Learner:
        vocab_size = shape_of(target, 1, len(head.draft_ids)).vocab_size
        num_steps = 3 if isinstance(head, Eagle3) else head.num_heads
        return HeadLearner(head, vocab_size, how.loss, num_steps, decay=0.8)


def _own_rows(weight: Any, rows: Tensor | None) -> None:
    """Freeze `weight` at the target's `rows` [rows, width], or train it if `rows` is None."""
    if rows is not None:
        with torch.no_grad():
            weight.copy_(rows)
    weight.requires_grad_(rows is None)


def _check_shape(own: Tensor, target: Tensor) -> None:
    if own.shape != target.shape:
        raise BuildError(
            f"the draft was made for a target of [vocabulary, width] {list(own.shape)}; "
            f"this one has {list(target.shape)}"
        )


def _student(folder: Path) -> Student:
    try:
        return draft_checkpoints.load_student(folder)
    except _UNREADABLE as error:
        raise BuildError(
            f"{folder} holds no draft of `specdec build distill`, which alone can be trained on: "
            f"{error!r}"
        ) from error


def _head(folder: Path, target: Path) -> Any:
    try:
        return head_checkpoints.load(folder, target)
    except _UNREADABLE as error:
        raise BuildError(
            f"{folder} holds no EAGLE-3 or Medusa head for this target: {error!r}"
        ) from error
