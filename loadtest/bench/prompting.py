"""Prompts of a bench as token ids, and Spec-Bench's columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import AutoTokenizer

from builder.distill.prompts import PromptSettings, held_out
from loadtest.bench.article import TASKS
from loadtest.prompts import Prompt, load_prompts

CHECKPOINT = Path(__file__).parents[2] / "model_repository" / "target" / "1" / "checkpoint"

# Spec-Bench's reports group MT-bench's eight categories into one column.
MT_BENCH = frozenset(
    "writing roleplay reasoning math coding extraction stem humanities".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A first turn under the target's chat template."""

    prompt_id: str
    column: str
    token_ids: tuple[int, ...]


def load_token_prompts(
    path: Path, checkpoint: Path, salt: str = ""
) -> tuple[tuple[TokenPrompt, ...], int]:
    """The prompts of `path`, and the target's end token; see `as_tokens`."""
    return as_tokens(load_prompts(path), checkpoint, salt)


def as_tokens(
    prompts: Iterable[Prompt], checkpoint: Path, salt: str = ""
) -> tuple[tuple[TokenPrompt, ...], int]:
    """First turns as tokens, and the target's end token.

    With `salt`, which with the prompt's id begins every turn, no cached prefix of another salt
    helps.
    """
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)

    def encode(turn: str, prompt_id: str) -> tuple[int, ...]:
        content = f"({salt}-{prompt_id}) {turn}" if salt else turn
        messages = [{"role": "user", "content": content}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return tuple(tokenizer(str(text), add_special_tokens=False)["input_ids"])

    encoded = tuple(
        TokenPrompt(
            prompt_id=prompt.prompt_id,
            column="mt_bench" if prompt.category in MT_BENCH else prompt.category,
            token_ids=encode(prompt.turns[0], prompt.prompt_id),
        )
        for prompt in prompts
    )
    return encoded, int(tokenizer.eos_token_id)


def held_out_prompts(num_per_task: int | None) -> list[Prompt]:
    """Return the first prompts of each task that no training saw, or all of them."""
    held = held_out(PromptSettings())
    return [
        Prompt(f"{task}-{number}", task, (text,))
        for task in TASKS
        for number, text in enumerate(
            [text for own, text in held if own == task][:num_per_task], start=1
        )
    ]


def lengthened(prompts: Sequence[TokenPrompt], num_tokens: int) -> tuple[TokenPrompt, ...]:
    """Each with others in front of it, cut at the beginning; longer ones stay as they are."""

    def lengthen(place: int) -> TokenPrompt:
        own = prompts[place]
        ids = own.token_ids
        for other in itertools.cycle((*prompts[place + 1 :], *prompts[:place])):
            if len(ids) >= num_tokens:
                break
            ids = other.token_ids + ids
        num_kept = max(num_tokens, len(own.token_ids))
        return replace(own, token_ids=ids[-num_kept:])

    return tuple(lengthen(place) for place in range(len(prompts)))
