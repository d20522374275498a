"""One prompt of a training run, and the files in which a run keeps its prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Prompt:
    """A conversation to be answered; temperature 0 asks for the greedy answer.

    A prompt that is known as tokens has `input_ids` and no messages.
    """

    index: int
    kind: str
    messages: list[dict[str, str]]
    temperature: float = 0.0
    input_ids: list[int] | None = None


def chat_ids(tokenizer: Any, threads: list[list[dict[str, str]]]) -> list[list[int]]:
    """Return the token ids of conversations, up to and including the assistant's header."""
    found: list[list[int]] = tokenizer.apply_chat_template(
        threads, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return found


def all_tokens(prompts: Sequence[Prompt], tokenizer: Any) -> list[list[int]]:
    """Return the token ids of each prompt, as the target reads them."""
    threads = [prompt.messages for prompt in prompts if not prompt.input_ids]
    found = iter(chat_ids(tokenizer, threads) if threads else ())
    return [prompt.input_ids or next(found) for prompt in prompts]


def save(path: Path, prompts: list[Prompt]) -> None:
    """Write each prompt as a JSON object on a line of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(asdict(p), ensure_ascii=False) + "\n" for p in prompts)
    path.write_text("".join(lines), encoding="utf-8")


def load(path: Path) -> list[Prompt]:
    """Return the prompts of a file written by `save`."""
    return [Prompt(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
