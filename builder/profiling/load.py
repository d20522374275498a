"""The load of a profile: every drafter, with few guesses and with many, at each load."""

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
PROMPTS_PER_TASK = 4
LENGTHS = {"copies": (1, 3, 7), "engine": (1, 2, 4), "head": (1, 3, 6)}
"""Guesses a round: enough numbers for a line through their times, and for what bends it."""
LEAST_REQUESTS = 6
"""Of a way at a load; of many streams, each asks so many times as TURNS says."""
TURNS = 2


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked; `task` None: told by its text."""

    text: str
    task: str | None


@dataclass(frozen=True, slots=True)
class Way:
    """How it is asked; no drafter: as the controller chooses."""

    drafter: str | None = None
    num_draft_tokens: int | None = None

    def __str__(self) -> str:
        return "auto" if self.drafter is None else f"{self.drafter}:{self.num_draft_tokens}"


def prompts_of(path: Path | None) -> list[Prompt]:
    """{"prompt": text} a line, `task` where it is known; None: some of ours of each task.

    Raises BuildError that names the line.
    """
    if path is not None:
        return _read(path, None)
    files = sorted(SHIPPED.glob("*.jsonl"))
    if not files:
        raise BuildError(f"{SHIPPED} has no prompts; give yours with --prompts FILE")
    by_task = [_read(file, file.stem)[:PROMPTS_PER_TASK] for file in files]
    return [prompt for turn in zip(*by_task, strict=True) for prompt in turn]


def _read(path: Path, task: str | None) -> list[Prompt]:
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
    """What the controller may choose, itself first: under load it then sees who runs alone."""
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
    """Ask in every way at every load. Raises SpecdecError."""
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
    """For the head of every prompt, so that none is cached: what reading costs is learned too."""
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
