"""Prompt files, and the order in which a load test asks the prompts."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of a prompt file; a load test asks its first turn."""

    prompt_id: str
    category: str
    turns: tuple[str, ...]


def load_prompts(path: Path) -> tuple[Prompt, ...]:
    """Read a JSONL file in Spec-Bench's format (question_id, category, turns).

    Raises ValueError for a line in another format, for a question_id that is used twice, and for a
    file without prompts; OSError if the file cannot be read.
    """
    prompts: list[Prompt] = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                prompts.append(_parse(json.loads(line)))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path}, line {number}: {error!r}") from error
    if not prompts:
        raise ValueError(f"{path}: no prompts")
    if len({prompt.prompt_id for prompt in prompts}) < len(prompts):
        raise ValueError(f"{path}: a question_id is used twice")
    return tuple(prompts)


def _parse(fields: dict[str, Any]) -> Prompt:
    turns = tuple(fields["turns"])
    if not turns or not all(isinstance(turn, str) and turn for turn in turns):
        raise ValueError("turns must be a list of texts")
    return Prompt(str(fields["question_id"]), str(fields["category"]), turns)


def shuffled_rounds(prompts: Sequence[Prompt], seed: int) -> Iterator[Prompt]:
    """Yield the prompts for ever, each once before any comes again, each time in a new order."""
    order = random.Random(seed)
    while True:
        yield from order.sample(list(prompts), len(prompts))
