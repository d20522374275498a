"""The kinds of head that can be trained, EAGLE-3 and Medusa, with their settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from specdec.builder.distill.option import option
from specdec.builder.distill.training.learner import TrainSettings
from specdec.builder.heads import eagle3, medusa


@dataclass(frozen=True)
class Eagle3Settings(TrainSettings):
    """The settings of an EAGLE-3 head's training, with `num_steps` of the training-time test.

    The loss of each step weighs `step_decay` times as much as that of the step before it.
    """

    num_steps: int = option(3, "eagle3: steps of the training-time test; medusa: number of heads")
    step_decay: float = option(0.8, "weight of a step's loss, relative to the step before")


@dataclass(frozen=True)
class MedusaSettings(TrainSettings):
    """The settings of Medusa's training: `num_steps` heads of `num_layers` residual blocks.

    The loss of each head weighs `step_decay` times as much as that of the head before it.
    """

    num_steps: int = option(3, "eagle3: steps of the training-time test; medusa: number of heads")
    num_layers: int = option(1, "residual blocks in each head")
    step_decay: float = option(0.8, "weight of a step's loss, relative to the step before")


@dataclass(frozen=True)
class HeadKind:
    """A kind of head: how a new one is made, and with which settings it is trained."""

    name: str
    """Name of the kind, which is also the command's."""
    settings: type[Eagle3Settings | MedusaSettings]
    start: Callable[[Path, Tensor, Any], nn.Module]
    """Function that makes a new head from the target's folder, the draft ids and the settings."""
    sizes: Callable[[Any], dict[str, int]]
    """Function that returns the settings that follow from an existing head."""


EAGLE3 = HeadKind(
    "eagle3",
    Eagle3Settings,
    lambda target, ids, settings: eagle3.start(target, ids, settings.train_head),
    lambda _: {},
)
MEDUSA = HeadKind(
    "medusa",
    MedusaSettings,
    lambda target, ids, settings: medusa.start(
        target, ids, settings.num_steps, settings.num_layers, settings.train_head
    ),
    lambda head: {"num_steps": head.num_heads, "num_layers": head.num_layers},
)
