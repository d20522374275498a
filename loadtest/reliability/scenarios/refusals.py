"""Refuse hundreds of requests beside as many streams as the server takes; answers must be exact."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec.clients import GenerationRequest
from specdec.loadtest.reliability.kit.asking import Answer, Channels
from specdec.loadtest.reliability.kit.resources import settled
from specdec.loadtest.reliability.kit.table import Row, listed, spread
from specdec.loadtest.reliability.kit.watched import described, watched_server

NUM_STREAMS = 64
NUM_REFUSED = 576
PROMPTS = (
    "Count from one to one hundred in words: one, two, three,",
    "The capital of France is Paris. The capital of Italy is",
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):",
    "Write a story about a fox and a crow.",
)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The answers of one round."""

    num_exact: int
    num_refused: int
    """Refused requests among those sent beside the streams; a refused stream counts in `others`."""
    others: tuple[str, ...]
    """Errors of the answers that are neither exact nor refused."""
    slowest_refusal_s: float
    """Seconds from sending a request to its refusal."""


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Run rounds of streams at the limit with refused requests beside them, on one server."""
    with watched_server(repository) as watched:
        url = watched.server.grpc_url
        known = asyncio.run(references(url))
        results, left = [], []
        for number in range(rounds):
            results.append(asyncio.run(play_round(url, known, number)))
            left.append(asyncio.run(settled(watched.server)))
        yield row_of(results, left, watched.faults())


def row_of(results: Sequence[RoundResult], left: Sequence[int], faults: Sequence[str]) -> Row:
    """Return the row of all rounds; `left`: requests still in flight after each."""
    rounds = len(results)
    others = [each for result in results for each in result.others]
    slowest = [each.slowest_refusal_s for each in results]
    num_exact = sum(each.num_exact for each in results)
    return Row(
        f"{NUM_STREAMS} streams, {NUM_REFUSED} more asked at once (×{rounds})",
        f"{num_exact} answers exact, "
        f"{sum(each.num_refused for each in results)} refused (the slowest of a round after "
        f"{spread(slowest)}), {len(others)} otherwise{listed(others)}; {described(faults)}; "
        f"{max(left)} in flight after a round",
        f"0 deaths, the {NUM_STREAMS} streams and every accepted answer exact, 0 in flight",
        num_exact >= NUM_STREAMS * rounds and not (others or faults or any(left)),
    )


def requests_of(count: int, seed: int) -> list[GenerationRequest]:
    """Return `count` requests that allow 100 to 400 tokens each."""
    draw = random.Random(seed)
    return [
        GenerationRequest(text_input=PROMPTS[n % len(PROMPTS)], max_tokens=draw.randint(100, 400))
        for n in range(count)
    ]


async def references(url: str) -> dict[str, list[int]]:
    """Return the longest answer to each prompt, one at a time and without speculation."""
    async with Channels(url, 1) as channels:
        found = {}
        for prompt in PROMPTS:
            request = GenerationRequest(text_input=prompt, max_tokens=400, drafter="none")
            found[prompt] = (await channels.ask(0, request)).token_ids
        return found


async def play_round(url: str, known: dict[str, list[int]], seed: int) -> RoundResult:
    """Start the streams, then send more requests at once than the server takes."""
    streams = requests_of(NUM_STREAMS, seed)
    async with Channels(url, NUM_STREAMS) as inside, Channels(url, NUM_REFUSED) as outside:
        started = [asyncio.Event() for _ in streams]
        running = [
            asyncio.create_task(inside.ask(n, request, started[n]))
            for n, request in enumerate(streams)
        ]
        await asyncio.gather(*(each.wait() for each in started))
        more = requests_of(NUM_REFUSED, 1000 * seed)
        refused = await outside.ask_all(more)
        answers = [*(await asyncio.gather(*running)), *refused]
    expected = [known[each.text_input or ""][: each.max_tokens] for each in [*streams, *more]]
    return round_result(answers, expected)


def round_result(answers: Sequence[Answer], expected: Sequence[list[int]]) -> RoundResult:
    """Count the answers; only those after the first NUM_STREAMS may have been refused."""
    num_exact = num_refused = 0
    slowest_s = 0.0
    others = []
    for number, (answer, tokens) in enumerate(zip(answers, expected, strict=True)):
        if answer.is_complete and answer.token_ids == tokens:
            num_exact += 1
        elif number >= NUM_STREAMS and answer.error_type == "overloaded" and not answer.token_ids:
            num_refused += 1
            slowest_s = max(slowest_s, answer.last_s - answer.start_s)
        else:
            others.append(answer.detail or "wrong answer, or one that ended without reason")
    return RoundResult(num_exact, num_refused, tuple(others), slowest_s)
