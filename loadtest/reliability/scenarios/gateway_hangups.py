"""A thousand chats through the gateway, of which three in ten are hung up on."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec.launch.triton_server import TritonServer
from specdec.loadtest.reliability.kit.asking import WHOLE
from specdec.loadtest.reliability.kit.gateway_answers import CHATS, ask_chat, chat, session
from specdec.loadtest.reliability.kit.hangup_ways import DRAFTERS
from specdec.loadtest.reliability.kit.resources import (
    gateway_total,
    num_at_gateway,
    requests_by_outcome,
    settled,
)
from specdec.loadtest.reliability.kit.table import Row, counted
from specdec.loadtest.reliability.kit.watched import described, watched_server

NUM_REQUESTS_PER_ROUND = 1000
HANG_UP_SHARE = 0.3
NUM_CLIENTS = 24
NUM_TEXTS = 12
"""Different prompts; each has one right answer, by the target alone."""
MAX_TOKENS = 48
MIN_WAIT_S, MAX_WAIT_S = 0.05, 0.6
"""Times from a request to its hang-up. The request is sent within the shortest; most answers take
longer than the longest with NUM_CLIENTS clients."""
MIN_SEEN_SHARE = 0.9
"""Least share of the hang-ups that the gateway must count; the others came when an answer had been
sent, but not yet read."""


@dataclass(slots=True)
class Result:
    """Outcomes that the clients saw."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """Outcomes of the requests that were not hung up on; a wrong text is one of its own."""
    num_hang_ups: int = 0
    """Requests whose connection was closed before their answer had ended."""


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Ask NUM_REQUESTS_PER_ROUND × `rounds` times."""
    with watched_server(repository, has_openai=True) as watched:
        server = watched.server
        result = asyncio.run(_ask_all(server, NUM_REQUESTS_PER_ROUND * rounds))
        left = asyncio.run(settled(server))
        outcomes = requests_by_outcome(server)
        open_there = num_at_gateway(server)
        seen = gateway_total(server, "specdec_gateway_hang_ups_total")
        yield _row(result, outcomes["cancelled"], seen, left + open_there, watched.faults())


def _row(
    result: Result, num_cancelled: int, num_seen: int, num_left: int, faults: Sequence[str]
) -> Row:
    num_requests = result.outcomes.total() + result.num_hang_ups
    return Row(
        f"{num_requests} chats through the gateway by {NUM_CLIENTS} clients, "
        f"{result.num_hang_ups} of them hung up on",
        f"the others: {counted(result.outcomes.elements())}; the gateway saw {num_seen} hang-ups, "
        f"the server {num_cancelled} cancelled requests; {described(faults)}; {num_left} in flight",
        f"the others whole and as the target alone, at least {MIN_SEEN_SHARE:.0%} of the hang-ups "
        "seen, 0 in flight",
        set(result.outcomes) == {WHOLE}
        and MIN_SEEN_SHARE * result.num_hang_ups <= num_seen <= result.num_hang_ups
        and not (num_left or faults),
    )


async def _ask_all(server: TritonServer, num_requests: int) -> Result:
    draw, result = random.Random(num_requests), Result()
    numbers = iter(range(num_requests))
    url = server.openai_url
    async with session() as own:
        texts = [f"Count {number}: one, two, three," for number in range(NUM_TEXTS)]
        plain = [await ask_chat(own, url, chat(each, MAX_TOKENS, drafter="none")) for each in texts]
        expected = {text: each.token_ids for text, each in zip(texts, plain, strict=True)}

        async def client() -> None:
            for _ in numbers:
                text = draw.choice(texts)
                body = chat(
                    text, MAX_TOKENS, drafter=draw.choice(DRAFTERS), stream=draw.random() < 0.7
                )
                if draw.random() < HANG_UP_SHARE:
                    was_open = await _hang_up(url, body, draw.uniform(MIN_WAIT_S, MAX_WAIT_S))
                    # Only now, because another client may have counted during the wait.
                    result.num_hang_ups += was_open
                    continue
                answer = await ask_chat(own, url, body)
                is_right = answer.token_ids == expected[text] or answer.outcome != WHOLE
                result.outcomes[answer.outcome if is_right else "other tokens"] += 1

        await asyncio.gather(*(client() for _ in range(NUM_CLIENTS)))
    return result


async def _hang_up(url: str, body: dict[str, Any], wait_s: float) -> bool:
    """Close the connection `wait_s` after the request; return False if the answer had ended.

    Raises aiohttp.ClientError if the gateway refuses the request or breaks the connection.
    """

    async def read_all() -> None:
        async with own.post(url + CHATS, json=body) as response:
            response.raise_for_status()
            await response.read()

    async with session() as own:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(read_all(), wait_s)
            return False
    return True
