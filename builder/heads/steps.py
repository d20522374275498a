"""The steps of a head's training; prompts and answers are those of `specdec.builder.distill`."""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from typing import Any

import torch

from specdec.builder.distill import data, evaluate, measure
from specdec.builder.distill.answers.answering import feature_taps
from specdec.builder.distill.network import shape_of
from specdec.builder.distill.options import settings_from
from specdec.builder.distill.steps import Steps
from specdec.builder.distill.training import runs
from specdec.builder.distill.training.trainer import Trainer
from specdec.builder.heads import checkpoint
from specdec.builder.heads.features import with_features
from specdec.builder.heads.kinds import HeadKind
from specdec.builder.heads.learner import HeadLearner, accepted
from specdec.builder.heads.trainable import DraftHead

NUM_DRAFT = 4
"""Draft tokens in a round when a head is evaluated. Medusa drafts fewer if it has fewer heads."""


class HeadSteps(Steps):
    """The steps over one work directory."""

    def __init__(self, kind: HeadKind, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.kind = kind
        keeps_probabilities = self.answer_settings.num_top > 1
        self.answer_settings = replace(self.answer_settings, features=keeps_probabilities)

    def train(self) -> None:
        """Train the head on the answers in all shards, or on those of the wanted kinds."""
        settings = settings_from(self.kind.settings, self.options)
        run = self.work / self.options.run
        train_set, held = data.split(self.examples())
        earlier = self.earlier_draft(DraftHead(), checkpoint.assemble)
        if earlier is not None:
            inherited = runs.inherited(earlier.module, train_head=settings.train_head)
            inherited |= self.kind.sizes(earlier.module)
            settings = replace(settings, **inherited)
        ids = runs.draft_vocabulary(train_set, self.target, run, settings.draft_vocab, earlier)
        torch.manual_seed(settings.seed)
        head = self.kind.start(self.target, ids, settings) if earlier is None else earlier.module
        vocab_size = shape_of(self.target, 1, len(ids)).vocab_size
        learner = HeadLearner(head, vocab_size, settings.num_steps, settings.step_decay)
        # An answer of one token leaves nothing to draft.
        train_set, held = ([e for e in some if len(e.answer) > 1] for some in (train_set, held))
        read = self.reader(train_set, feature_taps(self.target))
        trainer = Trainer(learner, train_set, held, run, settings, read)
        trainer.run(is_continued=earlier is not None)

    def export(self) -> None:
        """Store the best checkpoint in the layout that other engines load."""
        state, ids, notes = runs.load_best(self.work / self.options.run)
        training: Any = notes["training"]
        settings = self.kind.settings(**training)
        head = self.kind.start(self.target, ids, settings)
        head.load_state_dict(state)
        checkpoint.store(head, self.target, self.draft, notes)
        if self.options.small:
            checkpoint.shrink(self.draft)
        print(f"export: {self.kind.layout.name} in {self.draft}")

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
