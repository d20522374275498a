"""The steps of distillation, from prompts to the evaluation of the trained draft."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoTokenizer

from specdec.builder.distill import checkpoint, data, evaluate, prompts
from specdec.builder.distill.answers.answering import AnswerSettings, answer
from specdec.builder.distill.answers.questions import sample
from specdec.builder.distill.answers.reader import Reader, have_probabilities
from specdec.builder.distill.arithmetic import training_device
from specdec.builder.distill.evaluate import Conversation
from specdec.builder.distill.network import start_from_target
from specdec.builder.distill.options import settings_from
from specdec.builder.distill.prompts import PromptSettings, separation, sources
from specdec.builder.distill.seeding import seeded
from specdec.builder.distill.trainable import DraftModel, TrainableDraft
from specdec.builder.distill.training import runs
from specdec.builder.distill.training.draft_model import (
    DraftModelLearner,
    DraftModelSettings,
    load_best,
)
from specdec.builder.distill.training.learner import Learner
from specdec.builder.distill.training.trainer import Trainer
from specdec.builder.errors import BuildError
from specdec.builder.prompt_files import read_prompts


class Steps:
    """The steps of distillation, over one work directory."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.target: Path = options.target
        self.work: Path = options.work
        self.sources: Path = options.sources or self.work / "sources"
        self.draft: Path = options.draft or self.work / "draft"
        self.answer_settings: AnswerSettings = settings_from(AnswerSettings, options)
        self.prompt_settings: PromptSettings = settings_from(PromptSettings, options)

    def prompts(self) -> None:
        """Download text and write prompts.jsonl; then add sampled questions if it has none yet."""
        out, settings = self.work / "prompts.jsonl", self.prompt_settings
        if not out.exists():
            if not self.options.no_fetch:
                sources.fetch(self.sources)
            given = self.options.prompts
            written = (
                prompts.shipped()
                if given is None
                else [(path.stem, each.text) for path in given for each in read_prompts(path)]
            )
            prompts.save(out, prompts.build(written, self.sources, settings, self.excluded()))
        known = prompts.load(out)
        if settings.num_sampled and not any(prompt.kind == "sampled" for prompt in known):
            found = sample(self.target, out, settings.num_sampled, self.answer_settings)
            known = prompts.with_sampled(known, found, settings, self.excluded())
            prompts.save(out, known)
        print(f"prompts: {len(known)} in {out.name}", flush=True)

    def excluded(self) -> list[str]:
        """Return the texts of --questions, which must not be trained on."""
        questions = self.options.questions
        return [] if questions is None else separation.texts_of(questions)

    def answers(self) -> None:
        """Answer the first wave of prompts."""
        shards = self.work / "answers"
        answer(self.target, self.work / "prompts.jsonl", shards, self.answer_settings)

    def second(self) -> None:
        """Make the second wave of prompts from answers to the first, and answer it.

        Held-out answers are not used.
        """
        out = self.work / "second.jsonl"
        if not out.exists():
            tokenizer = AutoTokenizer.from_pretrained(self.target)
            first = {p.index: p for p in prompts.load(self.work / "prompts.jsonl")}
            train_set, _ = data.split(data.read_shards(self.work / "answers"))
            answered = [
                (first[e.index], str(tokenizer.decode(e.answer, skip_special_tokens=True)))
                for e in train_set
                if e.index in first
            ]
            start = 1 + max(first)
            made = prompts.follow_ups(answered, start, self.prompt_settings, self.excluded())
            prompts.save(out, made)
        answer(self.target, out, self.work / "answers", self.answer_settings)

    def train(self) -> None:
        """Train the draft on the answers in all shards, or on those of the wanted kinds."""
        settings: DraftModelSettings = settings_from(DraftModelSettings, self.options)
        run = self.work / self.options.run
        train_set, held = data.split(self.examples())
        earlier = self.earlier_draft(DraftModel(), checkpoint.assemble)
        if earlier is not None:
            inherited = runs.inherited(earlier.module, train_head=settings.train_head)
            settings = replace(settings, layers=(), **inherited)
        ids = runs.draft_vocabulary(train_set, self.target, run, settings.draft_vocab, earlier)
        if earlier is None:
            layers = list(settings.layers)
            draft = start_from_target(self.target, layers, ids, settings.train_head)
            learner: Learner = DraftModelLearner(draft)
        else:
            learner = earlier
        trainer = Trainer(learner, train_set, held, run, settings, self.reader(train_set))
        trainer.run(is_continued=earlier is not None)

    def reader(
        self, examples: list[data.Example], taps: tuple[int, ...] = ()
    ) -> Callable[[list[data.Example]], list[data.Example]]:
        """Return a function that adds the target's probabilities, and states at `taps`.

        If the examples have probabilities already, it returns them unchanged.
        """
        if have_probabilities(examples):
            return list
        return Reader(self.target, training_device(), taps)

    def earlier_draft(
        self, kind: TrainableDraft, assemble: Callable[[Path, Path, Path], None]
    ) -> Learner | None:
        """Return the draft in `--start`, ready for further training; None without that option.

        Raises BuildError if the folder holds no draft of this kind.
        """
        folder, whole = self.options.start, self.work / "start"
        if folder is None:
            return None
        try:
            assemble(folder, self.target, whole)
        except (OSError, KeyError, ValueError, BuildError) as error:
            raise BuildError(f"--start {folder} is not a draft of this kind: {error}") from error
        return kind.continued(whole, self.target)

    def export(self) -> None:
        """Store the best checkpoint and compare it with transformers.

        Raises BuildError if the two propose different tokens at more than 1 % of the positions.
        """
        run = self.work / self.options.run
        draft, notes = load_best(run, self.target)
        checkpoint.store(draft, self.target, self.draft, notes)
        assembled = self.work / "assembled"
        checkpoint.assemble(self.draft, self.target, assembled)
        rng = seeded(self.options.seed)
        tokens = torch.tensor([rng.randrange(draft.shape.vocab_size) for _ in range(200)])
        loaded = checkpoint.load_draft(assembled)
        with torch.inference_mode():
            logits = loaded(tokens, [len(tokens)], torch.arange(len(tokens)))
        same = loaded.draft_ids[logits.argmax(1)] == checkpoint.transformers_argmax(
            assembled, tokens
        )
        print(f"export: argmax equal to transformers' at {int(same.sum())}/{len(same)} positions")
        # The two add numbers in another order, so near ties may differ.
        if same.float().mean() < 0.99:
            raise BuildError("the assembled draft proposes other tokens than in transformers")

    def evaluate(self) -> None:
        """Print acceptance by column of the questions file, or by kind of the held-out prompts."""
        items = self.conversations()
        draft = checkpoint.load_draft(self.work / "assembled")
        print(evaluate.report(evaluate.by_column(draft, items, num_draft=4)), flush=True)

    def conversations(self) -> list[Conversation]:
        """Return the conversations to evaluate on.

        Raises BuildError if one of the questions was trained on.
        """
        questions = self.options.questions
        if questions is None:
            return self.held_out()
        waves = [w for w in (self.work / "prompts.jsonl", self.work / "second.jsonl") if w.exists()]
        trained = [text for wave in waves for text in separation.texts_of(wave)]
        asked = separation.texts_of(questions)
        if copies := separation.shared(asked, trained):
            raise BuildError(
                f"{len(copies)} of the {len(asked)} texts of {questions} share {separation.RUN} "
                f"words in a row with a training prompt, for example: {copies[0][1]}"
            )
        print(
            f"evaluate: none of the {len(asked)} texts shares {separation.RUN} words in a row with "
            "a training prompt"
        )
        return evaluate.conversations(self.target, questions, self.work / "cache", max_new=128)

    def held_out(self) -> list[Conversation]:
        """Return the held-out prompts with the target's answers, by kind."""
        kinds = self.kinds()
        _, held = data.split(data.read_shards(self.work / "answers"))
        return [Conversation(kinds[e.index], e.prompt.tolist(), e.answer.tolist()) for e in held]

    def kinds(self) -> dict[int, str]:
        """Return the kind of each prompt, by index.

        It is the task of a written prompt, else how the prompt was made.
        """
        waves = (self.work / "prompts.jsonl", self.work / "second.jsonl")
        return {p.index: p.kind for w in waves if w.exists() for p in prompts.load(w)}

    def examples(self) -> list[data.Example]:
        """Return the examples to train on. Raises BuildError if none is of the wanted kinds."""
        found = data.read_shards(self.work / "answers")
        wanted = self.options.kinds
        if wanted is None:
            return found
        kinds = self.kinds()
        chosen = [each for each in found if kinds[each.index] in wanted]
        if not chosen:
            known = ", ".join(sorted(set(kinds.values())))
            raise BuildError(f"no answer is of the kind {', '.join(wanted)}; known: {known}")
        return chosen
