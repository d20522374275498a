"""The load of a profile: every drafter, with short drafts and long ones, at each load."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from specdec.builder.prompt_files import FilePrompt, read_prompts, shipped
from specdec.clients import GenerationRequest, GrpcClient
from specdec.drafting.names import LOOKUP
from specdec.settings.orchestrator import OrchestratorSettings

PROMPTS_PER_TASK = 4
"""Shipped prompts taken from each task."""
LENGTHS = {"lookup": (1, 3, 7), "draft model": (1, 2, 4), "head": (1, 3, 6)}
"""Draft tokens in a round, by kind of drafter: enough values to fit a line through their times, and
to see deviations from it."""
MIN_REQUESTS = 6
"""Fewest requests of a choice at a load."""
REQUESTS_PER_STREAM = 2
"""Requests of a choice by each stream, if these are more than MIN_REQUESTS together."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A drafter and draft length to ask for; without a drafter the controller chooses."""

    drafter: str | None = None
    num_draft_tokens: int | None = None

    def __str__(self) -> str:
        return "auto" if self.drafter is None else f"{self.drafter}:{self.num_draft_tokens}"


def prompts_of(path: Path | None) -> list[FilePrompt]:
    """Return the prompts of a file; without one, some shipped prompts of each task, in turn.

    The server classifies prompts whose file names no task. Raises BuildError for a malformed file.
    """
    if path is not None:
        return read_prompts(path)
    by_task = itertools.groupby(shipped(), key=lambda pair: pair[0])
    some = [list(itertools.islice(pairs, PROMPTS_PER_TASK)) for _, pairs in by_task]
    return [FilePrompt(text, task) for turn in zip(*some, strict=True) for task, text in turn]


def choices_of(settings: OrchestratorSettings) -> tuple[Choice, ...]:
    """Return the choices to ask for, drafter by drafter.

    The first and the last leave the choice to the controller, which then also sees requests without
    speculation at each load.
    """
    drafters, limit = settings.drafters, settings.engines.max_draft_len
    kinds = (
        *((LOOKUP, length) for length in LENGTHS["lookup"]),
        *itertools.product(drafters.draft_models, LENGTHS["draft model"]),
        *itertools.product(drafters.heads, LENGTHS["head"]),
        *((name, min(drafters.head_tree_num_draft_tokens, limit)) for name in drafters.head_trees),
    )
    return (
        Choice(),
        *(Choice(name, length) for name, length in kinds if length <= limit),
        Choice(),
    )


def send_load(
    client: GrpcClient,
    prompts: Sequence[FilePrompt],
    choices: Sequence[Choice],
    loads: Sequence[int],
    max_tokens: int,
) -> None:
    """Send requests with every choice at every load. Raises SpecdecError if one fails."""
    turn, salts = itertools.cycle(prompts), _salts()
    pairs = itertools.product(loads, choices)
    with tqdm(total=len(loads) * len(choices), unit="choice", disable=None) as bar:
        for num_streams, choice in pairs:
            bar.set_description(f"{num_streams} streams, {choice}")
            num_requests = max(MIN_REQUESTS, REQUESTS_PER_STREAM * num_streams)
            requests = [
                _request(prompt, choice, salt, max_tokens)
                for prompt, salt in itertools.islice(zip(turn, salts, strict=False), num_requests)
            ]
            with ThreadPoolExecutor(num_streams) as pool:
                list(pool.map(lambda request: _drain(client, request), requests))
            bar.update()


def _salts() -> Iterator[str]:
    """Yield texts to put before each prompt, so that none is cached.

    The controller then learns what reading prompts costs, too.
    """
    run = secrets.token_hex(3)
    return (f"({run}-{number}) " for number in itertools.count())


def _request(prompt: FilePrompt, choice: Choice, salt: str, max_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        messages=[{"role": "user", "content": salt + prompt.text}],
        max_tokens=max_tokens,
        drafter=choice.drafter,
        num_draft_tokens=choice.num_draft_tokens,
        task=prompt.task,
    )


def _drain(client: GrpcClient, request: GenerationRequest) -> None:
    for _ in client.stream(request):
        pass
