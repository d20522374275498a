"""`specdec build eagle3` and `specdec build medusa`: draft heads on a target's states."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from builder.distill import cli as steps
from builder.distill import data, evaluate, measure, train
from builder.distill.answers import feature_taps
from builder.distill.options import parser, settings_from
from builder.distill.student import shape_of
from builder.distill.train import TrainSettings
from builder.heads import checkpoint, eagle3, medusa
from builder.heads.features import with_features
from builder.heads.learner import HeadLearner, accepted
from builder.refresh.kinds import TargetHead

NUM_DRAFT = 4
"""Draft tokens in a round when a head is evaluated. Medusa drafts fewer if it has fewer heads."""


@dataclass(frozen=True)
class Eagle3Settings(TrainSettings):
    """Settings of an EAGLE-3 head's training, with `num_steps` of the training-time test.

    The loss of each step weighs `step_decay` times as much as that of the step before it.
    """

    num_steps: int = 3
    step_decay: float = 0.8


@dataclass(frozen=True)
class MedusaSettings(TrainSettings):
    """Settings of Medusa's training: `num_steps` heads of `num_layers` residual blocks.

    The loss of each head weighs `step_decay` times as much as that of the head before it.
    """

    num_steps: int = 3
    num_layers: int = 1
    step_decay: float = 0.8


@dataclass(frozen=True)
class Kind:
    """The differences between the two commands."""

    name: str
    text: str
    settings: type[Eagle3Settings | MedusaSettings]
    start: Callable[[Path, Tensor, Any], nn.Module]
    """Function that makes a new head from the target's folder, the draft ids and the settings."""
    shape: Callable[[Any], dict[str, int]]
    """Function that returns the settings that an existing head has decided already."""


KINDS = {
    "eagle3": Kind(
        "eagle3",
        "Train an EAGLE-3 head: one layer on the target's states.",
        Eagle3Settings,
        lambda target, ids, how: eagle3.start(target, ids, how.train_head),
        lambda _: {},
    ),
    "medusa": Kind(
        "medusa",
        "Train Medusa heads: one for each place ahead, on the target's last state.",
        MedusaSettings,
        lambda target, ids, how: medusa.start(
            target, ids, how.num_steps, how.num_layers, how.train_head
        ),
        lambda head: {"num_steps": head.num_heads, "num_layers": head.num_layers},
    ),
}


class HeadSteps(steps.Steps):
    """The steps over one work directory; prompts and answers are those of `build distill`."""

    def __init__(self, kind: Kind, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.kind = kind
        keeps_laws = self.answer_settings.num_top > 1
        self.answer_settings = replace(self.answer_settings, features=keeps_laws)

    def train(self) -> None:
        """Train the head on the answers in all shards, or on those of the wanted kinds."""
        how = settings_from(self.kind.settings, self.options)
        run = self.work / self.options.run
        train_set, held = data.split(self.examples())
        known = self.known(TargetHead(), checkpoint.assemble, how)
        if known is not None:
            its_own = train.inherited(known.module, train_head=how.train_head)
            its_own |= self.kind.shape(known.module)
            how = replace(how, **its_own)
        ids = train.draft_vocabulary(train_set, self.target, run, how.draft_vocab, known)
        torch.manual_seed(how.seed)
        head = self.kind.start(self.target, ids, how) if known is None else known.module
        vocab_size = shape_of(self.target, 1, len(ids)).vocab_size
        learner = HeadLearner(head, vocab_size, how.loss, how.num_steps, how.step_decay)
        # An answer of one token leaves nothing to draft.
        train_set, held = ([e for e in some if len(e.answer) > 1] for some in (train_set, held))
        read = self.reader(train_set, feature_taps(self.target))
        trainer = train.Trainer(learner, train_set, held, run, how, read)
        trainer.run(is_continued=known is not None)

    def export(self) -> None:
        """Store the best checkpoint in the layout that other engines load."""
        state, ids, notes = train.load_best(self.work / self.options.run)
        how = self.kind.settings(**dict(notes["training"]))  # type: ignore[call-overload]
        head = self.kind.start(self.target, ids, how)
        head.load_state_dict(state)
        checkpoint.store(self.kind.name, head, self.target, self.draft, notes)
        if self.options.small:
            checkpoint.shrink(self.draft)
        print(f"export: {self.kind.name} in {self.draft}")

    def evaluate(self) -> None:
        """Print acceptance by column of the questions file, or by kind of the held-out prompts."""
        whole = self.work / "assembled_head"
        checkpoint.assemble(self.draft, self.target, whole)
        head = checkpoint.load(whole, self.target)
        parts: dict[str, list[measure.Acceptance]] = defaultdict(list)
        items = self.conversations()
        for column, example in with_features(self.target, items, feature_taps(self.target)):
            found = accepted(head, [example], torch.device("cpu"), NUM_DRAFT)[0]
            parts[column].append(measure.walk(found, NUM_DRAFT))
        parts["all"] = [one for some in parts.values() for one in some]
        figures = {column: measure.total(some, NUM_DRAFT) for column, some in parts.items()}
        print(evaluate.report(figures), flush=True)


def main(kind: str, argv: list[str]) -> int:
    """Run the steps named on the command line; return 0 on success, 2 without a target."""
    chosen = KINDS[kind]
    top = parser(f"specdec build {kind}", chosen.text, chosen.settings)
    top.add_argument(
        "--small", action="store_true", help="export without what the target has (see add-head)"
    )
    return steps.run(top, argv, lambda options: HeadSteps(chosen, options))
