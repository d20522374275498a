"""A draft in training: its settings, its learner, and the figures of its evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from specdec.builder.distill import measure
from specdec.builder.distill.data import Example


@dataclass(frozen=True)
class TrainSettings:
    """The settings of a training run.

    `minutes` ends a run early: the learning rate follows steps or minutes, whichever is further on.
    """

    draft_vocab: int = 8192
    train_head: bool = False
    loss: str = "kl"
    optimizer: str = "muon"
    learning_rate: float = 1e-3
    """Peak rate of AdamW, output rows excepted."""
    matrix_learning_rate: float = 1e-2
    """Peak rate of Muon."""
    head_learning_rate: float = 3e-4
    """Peak rate of the output rows."""
    weight_decay: float = 0.05
    warmup_share: float = 0.05
    """Share of the run in which the rate rises."""
    final_share: float = 0.05
    """Share of the peak rate at the end of the run."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    batch_tokens: int = 4096
    """Tokens in a step, prompts and answers together."""
    epochs: int = 3
    minutes: float = 1e9
    eval_every: int = 40
    """Steps between two evaluations."""
    num_draft: int = 4
    """Draft tokens in a round of the evaluation."""
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


def device() -> torch.device:
    """Return CUDA if there is such a device, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
