"""Prompts as token ids, and our held-out prompts, which no training saw."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import AutoTokenizer

from specdec.builder.distill.prompts import PromptSettings, held_out
from specdec.builder.prompt_files import column_of
from specdec.builder.repository.weights import WEIGHTS
from specdec.loadtest.kit.guide import TASKS
from specdec.loadtest.load.prompts import Prompt


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """A first turn under the target's chat template."""

    prompt_id: str
    column: str
    """The group of prompts that it belongs to: a column of a table."""
    token_ids: tuple[int, ...]
    end_id: int | None = None
    """The target's end token."""


NUM_PER_TASK = 11
"""Held-out prompts of each task in the benches of many streams, unless an option says otherwise."""

WARM_UP = TokenPrompt("warm-up", "", tuple(range(1000, 1040)))
"""A text that no prompt contains."""


def checkpoint_of(repository: Path, engine: str = "target") -> Path:
    """Return the folder of an engine's weights and tokenizer."""
    return repository / engine / WEIGHTS


def as_tokens(
    prompts: Iterable[Prompt], repository: Path, salt: str = ""
) -> tuple[TokenPrompt, ...]:
    """Return first turns as tokens of the repository's target.

    With a `salt` each turn begins with it and the prompt's id. So a prefix that is cached for
    another salt does not help.
    """
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_of(repository))

    def encode(prompt: Prompt) -> tuple[int, ...]:
        turn = prompt.turns[0]
        content = f"({salt}-{prompt.prompt_id}) {turn}" if salt else turn
        messages = [{"role": "user", "content": content}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return tuple(tokenizer(str(text), add_special_tokens=False)["input_ids"])

    end_id = tokenizer.eos_token_id
    return tuple(
        TokenPrompt(prompt.prompt_id, column_of(prompt.category), encode(prompt), end_id)
        for prompt in prompts
    )


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


def salted_prompts(per_task: int, repository: Path, seed: int, turn: int) -> Iterator[TokenPrompt]:
    """Yield all held-out prompts again and again, each time salted anew and in another order.

    The two passes of a pair, with `turn` 0 and 1, get the same prompts in the same order, with
    salts of equally many tokens. A salt changes the answer a little, and with it its length. It
    therefore depends on the pass's turn, which is drawn, and not on its arm.
    """
    order = random.Random(seed)
    for number in itertools.count():
        prompts = as_tokens(held_out_prompts(per_task), repository, f"{seed:03}{turn}{number}")
        yield from order.sample(prompts, len(prompts))
