"""A draft in training: its settings, its learner, and the figures of its evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from specdec.builder.distill import measure
from specdec.builder.distill.data import Example
from specdec.builder.distill.option import option


@dataclass(frozen=True)
class TrainSettings:
    """The settings of a training run.

    `minutes` ends a run early: the learning rate follows steps or minutes, whichever is further on.
    """

    draft_vocab: int = option(
        8192, "tokens that the draft can propose, the most frequent ones", smoke=1024
    )
    train_head: bool = option(False, "train the output rows too, instead of taking the target's")
    optimizer: str = option(
        "muon", "optimizer of the matrices; the rest always has AdamW", choices=("muon", "adamw")
    )
    learning_rate: float = option(1e-3, "peak rate of AdamW, output rows excepted")
    matrix_learning_rate: float = option(1e-2, "peak rate of Muon")
    head_learning_rate: float = option(3e-4, "peak rate of the output rows")
    weight_decay: float = option(0.05, "weight decay of matrices")
    warmup_share: float = option(0.05, "share of the run in which the rate rises")
    final_share: float = option(0.05, "share of the peak rate at the end of the run")
    clip: float = option(1.0, "largest norm of the gradient")
    batch_tokens: int = option(4096, "tokens in a step, prompts and answers together", smoke=1024)
    epochs: int = option(3, "passes over the answers", smoke=1)
    minutes: float = 1e9
    eval_every: int = option(40, "steps between two evaluations", smoke=5)
    num_draft: int = option(4, "draft tokens in a round of the evaluation")
    seed: int = 20


@dataclass(frozen=True)
class HeldOut:
    """Figures on held-out answers: top-1 agreement of the first draft token, and acceptance."""

    agreement: float
    acceptance: measure.Acceptance


class Learner(Protocol):
    """A draft in training: its network, loss and evaluation."""

    @property
    def module(self) -> nn.Module:
        """The module that is trained."""

    def loss(self, group: Sequence[Example]) -> Tensor:
        """Return the loss of one batch, a scalar; called under autocast."""

    def evaluate(self, held: Sequence[Example], num_draft: int) -> HeldOut:
        """Return agreement and acceptance of greedy drafts on greedy answers."""
