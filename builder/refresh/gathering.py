"""The prompts that a draft is trained on anew: files, or what the server has logged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builder.distill import prompts, separation
from builder.distill.prompts import Prompt
from builder.distill.seeding import seeded
from builder.errors import BuildError
from specdec.serving.prompt_log import read_log

MIN_PROMPTS = 100
"""Fewer say nothing about what is asked: one in ten is held out to judge by."""


def from_files(files: Sequence[Path]) -> list[Prompt]:
    """User turns of files with {"prompt": text} a line, none twice. Raises BuildError."""
    found = {text: path.stem for path in files for text in prompts.read(path)}
    pairs = separation.unmeasured([(kind, text) for text, kind in found.items()])
    return [Prompt(0, kind, [{"role": "user", "content": text}]) for kind, text in pairs]


def from_log(directory: Path, tenants: Sequence[str], tokenizer: Any) -> list[Prompt]:
    """What was logged, none twice; of these tenants alone where some are named.

    Raises BuildError.
    """
    try:
        logged = read_log(directory)
    except OSError as error:
        raise BuildError(f"the prompt log cannot be read: {error}") from error
    known = {one.input_ids: one.task for one in logged if not tenants or one.tenant in tenants}
    texts = {str(tokenizer.decode(list(ids))): (task, ids) for ids, task in known.items()}
    kept = separation.unmeasured([(task, text) for text, (task, _) in texts.items()])
    return [Prompt(0, task, [], input_ids=list(texts[text][1])) for task, text in kept]


def chosen(found: Sequence[Prompt], max_prompts: int, seed: int) -> list[Prompt]:
    """The newest `max_prompts`, numbered in random order; answers are greedy.

    Raises BuildError if there are too few.
    """
    if len(found) < MIN_PROMPTS:
        raise BuildError(
            f"at least {MIN_PROMPTS} different prompts are needed to train and to judge; "
            f"found: {len(found)}"
        )
    newest = list(found[-max_prompts:])
    seeded(seed).shuffle(newest)
    return [
        Prompt(index, each.kind, each.messages, input_ids=each.input_ids)
        for index, each in enumerate(newest)
    ]
