"""Drafts that can be trained further; draft models are here, heads in `specdec.builder.heads`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from specdec.builder.distill import checkpoint
from specdec.builder.distill.network import DraftNetwork
from specdec.builder.distill.target import embedding_and_output_rows
from specdec.builder.distill.training.draft_model import DraftModelLearner
from specdec.builder.distill.training.learner import Learner
from specdec.builder.errors import BuildError
from specdec.deployment.versions import CHECKPOINT

UNREADABLE = (OSError, KeyError, ValueError, RuntimeError)
"""Errors of a checkpoint that is incomplete or of another kind."""


class TrainableDraft(Protocol):
    """The reading, further training and writing of one kind of draft.

    In the methods, `folder` holds the draft's weights and `target` is the target's checkpoint.
    """

    @property
    def folder(self) -> str:
        """Folder of a model version that a refresh replaces: CHECKPOINT or HEAD."""

    @property
    def reads_states(self) -> bool:
        """Whether training needs the target's hidden states as well as its answers."""

    def served(self, folder: Path, target: Path) -> Learner:
        """Return the draft as it is served. Raises BuildError if it cannot be trained further."""

    def continued(self, folder: Path, target: Path) -> Learner:
        """Return the draft for training, with the parts that it shares with its target renewed.

        Raises BuildError if it cannot be trained further for this target.
        """

    def write(self, learner: Learner, target: Path, notes: dict[str, Any], out: Path) -> None:
        """Write the folder `out` that engines load; `notes` go into its config.json."""


@dataclass(frozen=True)
class DraftModel:
    """Draft models that `specdec build distill` makes."""

    folder: str = CHECKPOINT
    reads_states: bool = False

    def served(self, folder: Path, target: Path) -> Learner:  # noqa: ARG002
        return DraftModelLearner(_draft(folder))

    def continued(self, folder: Path, target: Path) -> Learner:
        draft = _draft(folder)
        embed, _ = embedding_and_output_rows(target)
        _check_shape(draft.embed, embed)
        is_targets = torch.equal(draft.lm_head.weight, draft.embed[draft.draft_ids])
        draft.embed.copy_(embed)
        # Output rows begin as rows of the embedding; those that still equal it follow the target.
        train_or_copy_rows(draft.lm_head.weight, embed[draft.draft_ids] if is_targets else None)
        return DraftModelLearner(draft.train())

    def write(self, learner: Learner, target: Path, notes: dict[str, Any], out: Path) -> None:
        draft = learner.module.cpu()
        assert isinstance(draft, DraftNetwork)
        stored = out.with_name(f"{out.name}.stored")
        checkpoint.store(draft, target, stored, notes)
        checkpoint.assemble(stored, target, out)


def train_or_copy_rows(weight: Any, rows: Tensor | None) -> None:
    """Freeze `weight` at the target's `rows` [rows, width], or let it be trained without `rows`."""
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


def _draft(folder: Path) -> DraftNetwork:
    try:
        return checkpoint.load_draft(folder)
    except UNREADABLE as error:
        raise BuildError(
            f"{folder} holds no draft of `specdec build distill`, so it cannot be trained further: "
            f"{error!r}"
        ) from error
