"""Prompts as token ids: of a file, or of ours that no training saw."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import AutoTokenizer

from specdec.builder.distill.prompts import PromptSettings, held_out
from specdec.builder.prompt_files import column_of
from specdec.folders import default_model_repository
from specdec.loadtest.kit.guide import TASKS
from specdec.loadtest.load.prompts import Prompt, load_prompts

CHECKPOINT = default_model_repository() / "target" / "1" / "checkpoint"


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A first turn under the target's chat template."""

    prompt_id: str
    column: str
    """The group of prompts that it belongs to: a column of a table."""
    token_ids: tuple[int, ...]


NUM_PER_TASK = 11
"""Held-out prompts of each task in the benches of many streams, unless an option says otherwise."""

WARM_UP = TokenPrompt("warm-up", "", tuple(range(1000, 1040)))
"""A text that no prompt contains."""


def load_token_prompts(
    path: Path, checkpoint: Path, salt: str = ""
) -> tuple[tuple[TokenPrompt, ...], int]:
    """Return the prompts of a file, and the target's end token; see `as_tokens`."""
    return as_tokens(load_prompts(path), checkpoint, salt)


def as_tokens(
    prompts: Iterable[Prompt], checkpoint: Path, salt: str = ""
) -> tuple[tuple[TokenPrompt, ...], int]:
    """Return first turns as tokens, and the target's end token.

    With a `salt` each turn begins with it and the prompt's id. So a prefix that is cached for
    another salt does not help.
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
            column=column_of(prompt.category),
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
    """Return each prompt with others before it, cut at the beginning to `num_tokens` tokens.

    Longer prompts stay as they are.
    """

    def lengthen(position: int) -> TokenPrompt:
        own = prompts[position]
        ids = own.token_ids
        for other in itertools.cycle((*prompts[position + 1 :], *prompts[:position])):
            if len(ids) >= num_tokens:
                break
            ids = other.token_ids + ids
        num_kept = max(num_tokens, len(own.token_ids))
        return replace(own, token_ids=ids[-num_kept:])

    return tuple(lengthen(position) for position in range(len(prompts)))


def spread(prompts: Sequence[TokenPrompt], count: int) -> list[TokenPrompt]:
    """Return `count` prompts, evenly spaced over all of them."""
    return [prompts[i * len(prompts) // count] for i in range(count)]


def salted_prompts(per_task: int, checkpoint: Path, seed: int, turn: int) -> Iterator[TokenPrompt]:
    """Yield all held-out prompts again and again, each time salted anew and in another order.

    The two passes of a pair, with `turn` 0 and 1, get the same prompts in the same order, with
    salts of equally many tokens. A salt changes the answer a little, and with it its length. It
    therefore depends on the pass's turn, which is drawn, and not on its arm.
    """
    order = random.Random(seed)
    for number in itertools.count():
        prompts, _ = as_tokens(held_out_prompts(per_task), checkpoint, f"{seed:03}{turn}{number}")
        yield from order.sample(prompts, len(prompts))
