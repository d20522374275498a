"""The learner of a head: each step against the target's probabilities for its draft token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from specdec.builder.distill import data, measure
from specdec.builder.distill.arithmetic import training_device
from specdec.builder.distill.data import Example
from specdec.builder.distill.training import loss
from specdec.builder.distill.training.learner import HeldOut
from specdec.builder.heads.batch import HeadBatch, collate


class Head(Protocol):
    """An EAGLE-3 or Medusa head."""

    draft_ids: Tensor

    def steps(self, batch: HeadBatch, num_steps: int) -> Iterator[Tensor]:
        """Yield logits [anchors, draft vocab] of each step, with all earlier tokens accepted."""


class HeadLearner:
    """A head in training; the loss of each step weighs `decay` times that of the step before."""

    def __init__(self, head: nn.Module, vocab_size: int, num_steps: int, decay: float) -> None:
        self.device = training_device()
        self.module = head.to(self.device)
        self.num_steps, self.decay = num_steps, decay
        self.table = data.target_to_draft(self._head.draft_ids.cpu(), vocab_size).to(self.device)

    @property
    def _head(self) -> Head:
        head: Head = self.module  # type: ignore[assignment]
        return head

    def loss(self, group: Sequence[Example]) -> Tensor:
        batch = collate(group, self.device, self.num_steps, data.PAD_STEP)
        total = torch.zeros((), device=self.device)
        weight = 1.0
        for number, logits in enumerate(self._head.steps(batch, self.num_steps)):
            rows = batch.answer_rows[number]
            targets = loss.soft_targets(batch.top_ids[rows], batch.top_logprobs[rows], self.table)
            total = total + weight * loss.distillation_loss(logits, *targets)
            weight *= self.decay
        return total

    def evaluate(self, held: Sequence[Example], num_draft: int) -> HeldOut:
        parts, hits, num = [], 0, 0
        for group in data.batches(list(held), 4096, None):
            lengths = accepted(self._head, group, self.device, num_draft)
            parts += [measure.walk(one, num_draft) for one in lengths]
            hits += sum(count > 0 for one in lengths for count in one)
            num += sum(map(len, lengths))
        return HeldOut(hits / max(num, 1), measure.total(parts, num_draft))


@torch.inference_mode()
def accepted(
    head: Head, group: Sequence[Example], device: torch.device, num_draft: int
) -> list[list[int]]:
    """Return, by example and anchor, how many of num_draft greedy tokens agree with the answer.

    Counting ends at the first wrong token. Up to there the head's own tokens are those of the
    answer, so the head may read the answer.
    """
    batch = collate(group, device, num_draft)
    running = torch.ones(len(batch.anchors), dtype=torch.bool, device=device)
    counts = torch.zeros(len(batch.anchors), dtype=torch.int64, device=device)
    for number, logits in enumerate(head.steps(batch, num_draft)):
        drafted = head.draft_ids[logits.argmax(dim=1)]
        running = running & (drafted == batch.answer[batch.answer_rows[number]])
        counts += running
    return [one.tolist() for one in counts.cpu().split(batch.anchors_of)]
