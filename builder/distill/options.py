"""The command lines of training, in which every setting is an option."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from specdec.builder.distill.answers.answering import AnswerSettings
from specdec.builder.distill.prompts import PromptSettings
from specdec.builder.distill.training.learner import TrainSettings
from specdec.builder.errors import BuildError

STEPS = ("prompts", "answers", "second", "train", "export", "evaluate")


def add_training_options(top: argparse.ArgumentParser, train_settings: type[TrainSettings]) -> None:
    """Add the steps and an option for each field of the settings classes to the parser."""
    top.description = (
        f"{top.description} Work is kept in --work, and a later run resumes it. For the default "
        "prompts a CPU takes about two hours, a GPU minutes."
    )
    top.epilog = f"Example: {top.prog} all --target TARGET_DIR --work WORK_DIR --draft DRAFT_DIR"
    top.add_argument("step", choices=[*STEPS, "all"], help="one step, or all in order")
    top.add_argument("--target", type=Path, required=True, help="Hugging Face directory")
    top.add_argument(
        "--work", type=Path, required=True, help="folder for prompts, answers and training runs"
    )
    _add_files(top)
    _add_choices(top)
    groups = {"prompts": PromptSettings, "answers": AnswerSettings, "training": train_settings}
    for title, settings in groups.items():
        group = top.add_argument_group(title)
        for field in fields(settings):
            if "help" in field.metadata:
                _add_option(group, field)


def _add_files(top: argparse.ArgumentParser) -> None:
    top.add_argument(
        "--prompts",
        type=Path,
        nargs="*",
        help='files with {"prompt": text} on each line; default: the shipped ones',
    )
    top.add_argument(
        "--sources", type=Path, help="folder for archives of text (default: WORK/sources)"
    )
    top.add_argument(
        "--no-fetch",
        action="store_true",
        help="download no text; use archives that are there already",
    )
    top.add_argument("--draft", type=Path, help="folder for the result (default: WORK/draft)")
    top.add_argument(
        "--start", type=Path, help="a stored draft to train further, instead of a new one"
    )
    top.add_argument(
        "--questions",
        type=Path,
        help="jsonl to evaluate on (Spec-Bench format); default: held-out prompts",
    )


def _add_choices(top: argparse.ArgumentParser) -> None:
    top.add_argument("--run", default="run", help="name of the training run under WORK")
    top.add_argument(
        "--kinds", nargs="+", help="train on answers to prompts of these kinds; default: all"
    )
    top.add_argument(
        "--smoke", action="store_true", help="tiny settings, with which all steps take minutes"
    )
    top.add_argument("--minutes", type=float, help="time limit of answering and of training, each")
    top.add_argument(
        "--seed", type=int, default=20, help="seed of prompts, answers and training (default: 20)"
    )


def run_steps(options: argparse.Namespace, start: Callable[[argparse.Namespace], Any]) -> int:
    """Run the chosen steps and return 0. Raises BuildError without a target, or if a step fails.

    `start` makes the object that has a method for each step.
    """
    if not (options.target / "model.safetensors").exists():
        raise BuildError(f"no model.safetensors in --target {options.target}")
    work = start(options)
    for name in STEPS if options.step == "all" else (options.step,):
        getattr(work, name)()
    return 0


def _add_option(group: Any, field: Field[Any]) -> None:
    flag, default = "--" + field.name.replace("_", "-"), field.default
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    text = f"{field.metadata['help']} (default: {shown})"
    if isinstance(default, bool):
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
    elif isinstance(default, tuple):
        kind = type(default[0])
        group.add_argument(flag, type=kind, nargs="+", metavar=kind.__name__, help=text)
    elif field.metadata["choices"]:
        group.add_argument(flag, choices=field.metadata["choices"], help=text)
    else:
        group.add_argument(flag, type=type(default), metavar=type(default).__name__, help=text)


def settings_from(kind: Any, options: argparse.Namespace) -> Any:
    """Return settings of the class `kind`: its defaults, replaced by --smoke, then by options."""
    values: dict[str, Any] = {}
    for field in fields(kind):
        given = getattr(options, field.name, None)
        if given is not None:
            values[field.name] = tuple(given) if isinstance(given, list) else given
        elif options.smoke and "smoke" in field.metadata:
            values[field.name] = field.metadata["smoke"]
    return kind(**values)
