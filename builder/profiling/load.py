"""The load of a profile: every drafter, with short drafts and long ones, at each load."""

from __future__ import annotations

import itertools
import json
import secrets
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from builder.errors import BuildError
from clients import GenerationRequest, GrpcClient
from specdec.serving.drafter_names import LOOKUP
from specdec.serving.settings import OrchestratorSettings

SHIPPED = Path(__file__).parents[1] / "prompts"
"""Folder of the shipped prompts, one file for each task."""
PROMPTS_PER_TASK = 4
"""Shipped prompts taken of each task."""
LENGTHS = {"copies": (1, 3, 7), "engine": (1, 2, 4), "head": (1, 3, 6)}
"""Draft tokens in a round, by kind of drafter: enough values to fit a line through their times, and
deviations from it."""
LEAST_REQUESTS = 6
"""Fewest requests of a choice at a load."""
TURNS = 2
"""Requests of a choice by each stream, if that is more than LEAST_REQUESTS in all."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text of a request, and its task; if that is None, the server tells it from the text."""

    text: str
    task: str | None


@dataclass(frozen=True, slots=True)
class Way:
    """A choice to ask for, drafter and draft tokens; without a drafter the controller chooses."""

    drafter: str | None = None
    num_draft_tokens: int | None = None

    def __str__(self) -> str:
        return "auto" if self.drafter is None else f"{self.drafter}:{self.num_draft_tokens}"


def prompts_of(path: Path | None) -> list[Prompt]:
    """Return the prompts of a file with {"prompt": text} on each line, and "task" if it is known.

    Without a file, return some shipped prompts of each task, the tasks in turn. Raises BuildError
    that names the line.
    """
    if path is not None:
        return _read(path, None)
    files = sorted(SHIPPED.glob("*.jsonl"))
    if not files:
        raise BuildError(f"{SHIPPED} has no prompts; give yours with --prompts FILE")
    by_task = [_read(file, file.stem)[:PROMPTS_PER_TASK] for file in files]
    return [prompt for turn in zip(*by_task, strict=True) for prompt in turn]


def _read(path: Path, task: str | None) -> list[Prompt]:
    """Return the prompts of a file; `task` is that of lines without one."""
    found = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise BuildError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            fields = json.loads(line)
            text, label = fields["prompt"], fields.get("task", task)
        except (ValueError, KeyError, TypeError, AttributeError):
            text = label = None
        if not isinstance(text, str) or not isinstance(label, str | None):
            raise BuildError(
                f'{path}, line {number}: a line is {{"prompt": text}}, "task" beside it if known'
            )
        found.append(Prompt(text, label))
    if not found:
        raise BuildError(f"{path} has no prompts")
    return found


def ways(settings: OrchestratorSettings) -> tuple[Way, ...]:
    """Return the choices to ask for, drafter by drafter.

    The first and the last leave the choice to the controller, which then also sees requests without
    speculation at each load.
    """
    limit = settings.max_draft_len
    kinds = (
        *((LOOKUP, length) for length in LENGTHS["copies"]),
        *itertools.product(settings.draft_models, LENGTHS["engine"]),
        *itertools.product(settings.heads, LENGTHS["head"]),
        *((name, min(settings.head_tree_num_draft_tokens, limit)) for name in settings.head_trees),
    )
    return (Way(), *(Way(name, length) for name, length in kinds if length <= limit), Way())


def put_on(
    client: GrpcClient,
    prompts: Sequence[Prompt],
    asked: Sequence[Way],
    loads: Sequence[int],
    max_tokens: int,
) -> None:
    """Send requests with every choice at every load. Raises SpecdecError if one fails."""
    turn, salts = itertools.cycle(prompts), _salts()
    for num_streams in loads:
        for number, way in enumerate(asked, start=1):
            where = f"\r{num_streams} streams: {way}, {number} of {len(asked)}"
            print(f"{where:60}", end="", file=sys.stderr, flush=True)
            num_requests = max(LEAST_REQUESTS, TURNS * num_streams)
            requests = [
                _request(prompt, way, salt, max_tokens)
                for prompt, salt in itertools.islice(zip(turn, salts, strict=False), num_requests)
            ]
            with ThreadPoolExecutor(num_streams) as pool:
                list(pool.map(lambda request: _drain(client, request), requests))
    print(file=sys.stderr)


def _salts() -> Iterator[str]:
    """Yield texts to put before each prompt, so that none is cached.

    The controller then learns what reading prompts costs, too.
    """
    run = secrets.token_hex(3)
    return (f"({run}-{number}) " for number in itertools.count())


def _request(prompt: Prompt, way: Way, salt: str, max_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        messages=[{"role": "user", "content": salt + prompt.text}],
        max_tokens=max_tokens,
        drafter=way.drafter,
        num_draft_tokens=way.num_draft_tokens,
        task=prompt.task,
    )


def _drain(client: GrpcClient, request: GenerationRequest) -> None:
    for _ in client.stream(request):
        pass
