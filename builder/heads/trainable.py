"""EAGLE-3 and Medusa heads as drafts that can be trained further."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.builder.distill.network import shape_of
from specdec.builder.distill.target import embedding_and_output_rows
from specdec.builder.distill.trainable import UNREADABLE, train_or_copy_rows
from specdec.builder.distill.training.learner import Learner
from specdec.builder.errors import BuildError
from specdec.builder.heads import checkpoint
from specdec.builder.heads.kinds import kind_of
from specdec.builder.heads.learner import HeadLearner
from specdec.deployment.versions import HEAD


@dataclass(frozen=True)
class DraftHead:
    """Heads that `build eagle3` and `build medusa` make, and others of the same layout."""

    folder: str = HEAD
    reads_states: bool = True

    def served(self, folder: Path, target: Path) -> Learner:
        return self._learner(_head(folder, target), target)

    def continued(self, folder: Path, target: Path) -> Learner:
        head = _head(folder, target)
        training = json.loads((folder / "config.json").read_text("utf-8")).get("training", {})
        is_targets = not training.get("train_head", True)
        rows = embedding_and_output_rows(target)[1][head.draft_ids]
        train_or_copy_rows(head.lm_head.weight, rows if is_targets else None)
        return self._learner(head.train(), target)

    def write(self, learner: Learner, target: Path, notes: dict[str, Any], out: Path) -> None:
        head: Any = learner.module.cpu()
        training = {"train_head": head.lm_head.weight.requires_grad}
        checkpoint.store(head, target, out, {"training": training, **notes})

    @staticmethod
    def _learner(head: Any, target: Path) -> Learner:
        vocab_size = shape_of(target, 1, len(head.draft_ids)).vocab_size
        kind = kind_of(head)
        settings = kind.settings(**kind.sizes(head))
        return HeadLearner(head, vocab_size, settings.num_steps, settings.step_decay)


def _head(folder: Path, target: Path) -> Any:
    try:
        return checkpoint.load(folder, target)
    except UNREADABLE as error:
        raise BuildError(
            f"{folder} holds no EAGLE-3 or Medusa head for this target: {error!r}"
        ) from error
