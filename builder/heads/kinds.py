"""The kinds of head that can be trained, EAGLE-3 and Medusa, with their settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from specdec.builder.distill.option import option
from specdec.builder.distill.training.learner import TrainSettings
from specdec.builder.heads import eagle3, layouts, medusa
from specdec.builder.heads.layouts import HeadLayout


@dataclass(frozen=True)
class Eagle3Settings(TrainSettings):
    """The settings of an EAGLE-3 head's training, with `num_steps` of the training-time test.

    The loss of each step weighs `step_decay` times as much as that of the step before it.
    """

    num_steps: int = option(3, "steps of the training-time test")
    step_decay: float = option(0.8, "weight of a step's loss, relative to the step before")


@dataclass(frozen=True)
class MedusaSettings(TrainSettings):
    """The settings of Medusa's training: `num_steps` heads of `num_layers` residual blocks.

    The loss of each head weighs `step_decay` times as much as that of the head before it.
    """

    num_steps: int = option(3, "number of heads")
    num_layers: int = option(1, "residual blocks in each head")
    step_decay: float = option(0.8, "weight of a head's loss, relative to the head before")


@dataclass(frozen=True)
class HeadKind:
    """A kind of head: its files, the making of a new one, and the settings of its training."""

    layout: HeadLayout
    """Its files; `layout.name` is the name of the kind."""
    settings: type[Eagle3Settings | MedusaSettings]
    start: Callable[[Path, Tensor, Any], nn.Module]
    """Function that makes a new head from the target's folder, the draft ids and the settings."""
    sizes: Callable[[Any], dict[str, Any]]
    """Function that returns the settings that follow from an existing head."""


EAGLE3 = HeadKind(
    layouts.EAGLE3,
    Eagle3Settings,
    lambda target, ids, settings: eagle3.start(target, ids, settings.train_head),
    lambda _: {},
)
MEDUSA = HeadKind(
    layouts.MEDUSA,
    MedusaSettings,
    lambda target, ids, settings: medusa.start(
        target, ids, settings.num_steps, settings.num_layers, settings.train_head
    ),
    lambda head: {"num_steps": head.num_heads, "num_layers": head.num_layers},
)


def kind_of(head: nn.Module) -> HeadKind:
    """Return the head's kind. Raises TypeError for a module that is not a head."""
    layout = layouts.layout_of(head)
    return next(kind for kind in (EAGLE3, MEDUSA) if kind.layout is layout)
