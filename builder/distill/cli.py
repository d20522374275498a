"""`specdec build distill`: prompts, answers, train, export, evaluate, or all of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from builder.distill import (
    answers,
    checkpoint,
    data,
    evaluate,
    prompts,
    separation,
    sources,
    student_learner,
    train,
)
from builder.distill.answers import AnswerSettings
from builder.distill.evaluate import Conversation
from builder.distill.prompts import PromptSettings
from builder.distill.seeding import seeded
from builder.distill.student import start_from_target
from builder.distill.student_learner import StudentLearner, StudentSettings
from builder.distill.train import TrainSettings

STEPS = ("prompts", "answers", "second", "train", "export", "evaluate")
SMOKE = {
    "num_again": 4,
    "num_sampled": 24,
    "num_summarise": 2,
    "num_question": 2,
    "num_rewrite": 2,
    "num_translate": 2,
    "num_math": 24,
    "num_short": 24,
    "num_code": 4,
    "num_workers": 1,
    "num_slots": 24,
    "max_new": 24,
    "layers": (0, 29),
    "draft_vocab": 1024,
    "epochs": 1,
    "batch_tokens": 1024,
    "eval_every": 5,
}


def parser(prog: str, text: str, train_settings: type[TrainSettings]) -> argparse.ArgumentParser:
    """The command line; every dataclass setting is an option of its step."""
    top = argparse.ArgumentParser(
        prog=prog,
        description=f"{text} Work is kept under --work and resumed; a CPU takes about two hours "
        "for the default set, a GPU minutes.",
        epilog=f"Example: {prog} all --target TARGET_DIR --work WORK_DIR --draft DRAFT_DIR",
    )
    top.add_argument("step", choices=[*STEPS, "all"], help="one step, or all in order")
    top.add_argument("--target", type=Path, required=True, help="Hugging Face directory")
    top.add_argument("--work", type=Path, required=True, help="prompts, shards, runs")
    top.add_argument(
        "--prompts",
        type=Path,
        nargs="*",
        help='files with {"prompt": text} a line; default: the shipped ones',
    )
    top.add_argument("--sources", type=Path, help="archives (default: WORK/sources)")
    top.add_argument("--no-fetch", action="store_true", help="use only archives already there")
    top.add_argument("--draft", type=Path, help="stored draft (default: WORK/draft)")
    top.add_argument("--run", default="run", help="name of the training run under WORK")
    top.add_argument(
        "--questions",
        type=Path,
        help="jsonl to evaluate on (Spec-Bench format); default: held-out prompts",
    )
    top.add_argument("--num-second", type=int, default=1200, help="second-wave prompts")
    top.add_argument("--smoke", action="store_true", help="tiny settings: the chain in minutes")
    top.add_argument("--minutes", type=float, help="time limit of answers and of train")
    top.add_argument("--seed", type=int, default=20)
    for settings in (PromptSettings, AnswerSettings, train_settings):
        group = top.add_argument_group(settings.__name__)
        for field in fields(settings):
            if field.name not in {"seed", "minutes", "features"}:
                _add_option(group, field.name, field.default)
    return top


def _add_option(group: Any, name: str, default: Any) -> None:
    flag = "--" + name.replace("_", "-")
    text = f"default: {default}"
    if isinstance(default, bool):
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
    elif isinstance(default, tuple):
        kind = type(default[0])
        group.add_argument(flag, type=kind, nargs="+", metavar=kind.__name__, help=text)
    else:
        group.add_argument(flag, type=type(default), metavar=type(default).__name__, help=text)


def settings_from(kind: Any, options: argparse.Namespace) -> Any:
    """A settings dataclass from its defaults, --smoke and the given options, in that order."""
    values: dict[str, Any] = {"seed": options.seed}
    for field in fields(kind):
        given = getattr(options, field.name, None)
        if field.name == "seed":
            continue
        if given is not None:
            values[field.name] = tuple(given) if isinstance(given, list) else given
        elif options.smoke and field.name in SMOKE:
            values[field.name] = SMOKE[field.name]
    return kind(**values)


class Steps:
    """The steps over one work directory."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.target: Path = options.target
        self.work: Path = options.work
        self.sources: Path = options.sources or self.work / "sources"
        self.draft: Path = options.draft or self.work / "draft"
        self.answer_settings: AnswerSettings = settings_from(AnswerSettings, options)
        self.prompt_settings: PromptSettings = settings_from(PromptSettings, options)

    def prompts(self) -> None:
        """Fetch text, sample questions, write prompts.jsonl."""
        out = self.work / "prompts.jsonl"
        if out.exists():
            print(f"prompts: {out.name} is there, kept", flush=True)
            return
        if not self.options.no_fetch:
            sources.fetch(self.sources)
        given = self.options.prompts
        written = (
            prompts.shipped()
            if given is None
            else [(path.stem, text) for path in given for text in prompts.read(path)]
        )
        answers.make_prompts(
            self.target, written, self.sources, out, self.prompt_settings, self.answer_settings
        )
        print(f"prompts: {len(prompts.load(out))} written", flush=True)

    def answers(self) -> None:
        """Answer the first wave."""
        shards = self.work / "answers"
        answers.answer(self.target, self.work / "prompts.jsonl", shards, self.answer_settings)

    def second(self) -> None:
        """Make and answer the second wave from the first one's answers (not held-out ones)."""
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
            num = 12 if self.options.smoke else self.options.num_second
            start = 1 + max(first)
            made = prompts.follow_ups(answered, num, start, self.prompt_settings)
            prompts.save(out, made)
        answers.answer(self.target, out, self.work / "answers", self.answer_settings)

    def train(self) -> None:
        """Train the draft on all shards."""
        how: StudentSettings = settings_from(StudentSettings, self.options)
        run = self.work / self.options.run
        train_set, held = data.split(data.read_shards(self.work / "answers"))
        ids, coverage = train.draft_vocabulary(train_set, self.target, run, how.draft_vocab)
        print(f"train: the draft vocabulary covers {coverage:.4f} of the answers")
        student = start_from_target(self.target, list(how.layers), ids, how.train_head)
        learner = StudentLearner(student, how.loss)
        train.Trainer(learner, train_set, held, run, how).run()

    def export(self) -> None:
        """Store the best checkpoint and check it against transformers."""
        run = self.work / self.options.run
        student, notes = student_learner.load_best(run, self.target)
        checkpoint.store(student, self.target, self.draft, notes)
        assembled = self.work / "assembled"
        checkpoint.assemble(self.draft, self.target, assembled)
        rng = seeded(self.options.seed)
        tokens = torch.tensor([rng.randrange(student.shape.vocab_size) for _ in range(200)])
        loaded = checkpoint.load_student(assembled)
        with torch.inference_mode():
            logits = loaded(tokens, [len(tokens)], torch.arange(len(tokens)))
        same = loaded.draft_ids[logits.argmax(1)] == checkpoint.transformers_argmax(
            assembled, tokens
        )
        print(f"export: argmax equal to transformers' at {int(same.sum())}/{len(same)} positions")
        if same.float().mean() < 0.99:  # float32 sums differ in order: near-ties may flip
            raise RuntimeError("the assembled draft disagrees with transformers")

    def evaluate(self) -> None:
        """Acceptance by column on the questions file, else by kind on the held-out prompts."""
        items = self.conversations()
        student = checkpoint.load_student(self.work / "assembled")
        print(evaluate.report(evaluate.by_column(student, items, num_draft=4)), flush=True)

    def conversations(self) -> list[Conversation]:
        """What to evaluate on. Raises ValueError for questions that were trained on."""
        questions = self.options.questions
        if questions is None:
            return self.held_out()
        waves = [w for w in (self.work / "prompts.jsonl", self.work / "second.jsonl") if w.exists()]
        trained = [text for wave in waves for text in separation.texts_of(wave)]
        asked = separation.texts_of(questions)
        if copies := separation.shared(asked, trained):
            raise ValueError(
                f"{len(copies)} of the {len(asked)} texts of {questions} share {separation.RUN} "
                f"words in a row with a training prompt, for example: {copies[0][1]}"
            )
        print(f"evaluate: no run of {separation.RUN} words of {len(asked)} texts was trained on")
        return evaluate.conversations(self.target, questions, self.work / "cache", max_new=128)

    def held_out(self) -> list[Conversation]:
        """The held-out prompts with the target's answers, by kind."""
        waves = (self.work / "prompts.jsonl", self.work / "second.jsonl")
        kinds = {p.index: p.kind for w in waves if w.exists() for p in prompts.load(w)}
        _, held = data.split(data.read_shards(self.work / "answers"))
        return [Conversation(kinds[e.index], e.prompt.tolist(), e.answer.tolist()) for e in held]


def main(argv: list[str]) -> int:
    """Run the steps named on the command line; 0 on success."""
    text = "Distil a small standalone draft from a target."
    return run(parser("specdec build distill", text, StudentSettings), argv, Steps)


def run(
    command: argparse.ArgumentParser,
    argv: list[str],
    start: Callable[[argparse.Namespace], Steps],
) -> int:
    """Parse, check the target, run the steps; 0 on success."""
    options = command.parse_args(argv)
    if not (options.target / "model.safetensors").exists():
        print(f"no model.safetensors in --target {options.target}", file=sys.stderr)
        return 2
    work = start(options)
    for name in STEPS if options.step == "all" else (options.step,):
        getattr(work, name)()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
