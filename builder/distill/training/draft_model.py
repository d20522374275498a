"""The learner of a draft model: its next-token probabilities against the target's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from specdec.builder.distill import data, measure
from specdec.builder.distill.arithmetic import training_device
from specdec.builder.distill.data import Example
from specdec.builder.distill.network import DraftNetwork, without_weights
from specdec.builder.distill.option import option
from specdec.builder.distill.training import loss, runs
from specdec.builder.distill.training.learner import HeldOut, TrainSettings


@dataclass(frozen=True)
class DraftModelSettings(TrainSettings):
    """The settings of a draft's training; the draft starts as copies of the target's `layers`.

    `layers` is empty for a draft that was trained before.
    """

    layers: tuple[int, ...] = option(
        (0, 1, 29),
        "target layers that the new draft's layers start as copies of",
        smoke=(0, 29),
    )


class DraftModelLearner:
    """A draft model in training."""

    def __init__(self, draft: DraftNetwork) -> None:
        """Move the draft to the training device."""
        self.device = training_device()
        table = data.target_to_draft(draft.draft_ids.cpu(), draft.shape.vocab_size)
        self.module: DraftNetwork = draft.to(self.device)
        self.table = table.to(self.device)

    def loss(self, group: Sequence[Example]) -> Tensor:
        batch = data.collate(group, self.device, data.PAD_STEP)
        logits = self.module(batch.tokens, batch.lens, batch.rows)
        rows = loss.soft_targets(batch.top_ids, batch.top_logprobs, self.table)
        return loss.distillation_loss(logits, *rows)

    def evaluate(self, held: Sequence[Example], num_draft: int) -> HeldOut:
        parts, hits, num = [], 0, 0
        for group in data.batches(list(held), 4096, None):
            batch = data.collate(group, self.device)
            best = self.module(batch.tokens, batch.lens, batch.rows).argmax(dim=1)
            match = self.module.draft_ids[best] == batch.answer
            hits, num = hits + int(match.sum()), num + len(match)
            by_answer = match.cpu().split([len(e.answer) for e in group])
            parts += [measure.rounds(one.tolist(), num_draft) for one in by_answer]
        return HeldOut(hits / max(num, 1), measure.total(parts, num_draft))


def load_best(run: Path, target_dir: Path) -> tuple[DraftNetwork, dict[str, object]]:
    """Return the best checkpoint of a run, and notes for its config.json."""
    state, draft_ids, notes = runs.load_best(run)
    settings = notes["training"]
    assert isinstance(settings, dict)
    num_layers = len({name.split(".")[1] for name in state if name.startswith("layers.")})
    draft = without_weights(target_dir, num_layers, draft_ids, settings["train_head"])
    draft.load_state_dict(state)
    return draft.eval(), notes
