"""Two servers behind HAProxy, under load: one dies and comes back, one is drained, one is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil

from specdec.clients.errors import CONNECTION_FAILED
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.reliability.kit.asking import WHOLE, Answer
from specdec.loadtest.reliability.kit.gateway_answers import CHATS, ask_chat, chat, session
from specdec.loadtest.reliability.kit.haproxy import haproxy
from specdec.loadtest.reliability.kit.http_answers import CLOSED
from specdec.loadtest.reliability.kit.resources import gateway_total
from specdec.loadtest.reliability.kit.table import Row, counted

NUM_CLIENTS = 16
NUM_TOKENS = 48
NUM_LONG_TOKENS = 400
"""Tokens of the streams that are counted while they run."""
BEFORE_S, AFTER_S = 6.0, 6.0
"""Seconds of load before and after an event."""
READY_S = 120.0
"""Seconds within which a server is started again after its death."""
DRAIN_S = 60.0
BROKEN = frozenset({CLOSED, CONNECTION_FAILED, "engine_failed"})
"""Outcomes of an answer that had begun on a server that then died."""
NO_REPLICA = "no_replica"
"""Code of the proxy's own error."""
BACK_OFF_S = 0.2
"""Seconds that a client waits after a failure."""
SEEN_S = 1.0
"""Seconds in which the servers' gauges and the gateway's copy of them are up to date."""
TEXTS = [f"Count {number}: one, two, three," for number in range(NUM_CLIENTS)]

Pair = tuple[TritonServer, TritonServer]


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Start two servers and the proxy, and let all of it happen, `rounds` times."""
    for _ in range(rounds):
        with (
            TritonServer(repository, has_openai=True, drain_s=DRAIN_S) as first,
            TritonServer(repository, has_openai=True, drain_s=DRAIN_S) as second,
            haproxy([each.openai_url.removeprefix("http://") for each in (first, second)]) as url,
        ):
            yield asyncio.run(_count(url, (first, second)))
            yield asyncio.run(_kill(url, (first, second)))
            yield asyncio.run(_drain(url, (first, second)))
            yield asyncio.run(_end_last(url, second))
            yield asyncio.run(_without_any(url))


async def _count(url: str, servers: Pair) -> Row:
    """Compare the load that the gateways show with that of the clients."""
    before = [_num_answered(each) for each in servers]
    async with session() as own:
        begun = [asyncio.Event() for _ in TEXTS]
        bodies = [chat(text, NUM_LONG_TOKENS, stream=True) for text in TEXTS]
        asking = [
            asyncio.create_task(ask_chat(own, url, *each))
            for each in zip(bodies, begun, strict=True)
        ]
        await asyncio.gather(*(each.wait() for each in begun))
        await asyncio.sleep(SEEN_S)
        num_open = sum(not each.done() for each in asking)
        running = [gateway_total(each, "specdec_server_running_requests") for each in servers]
        answers = await asyncio.gather(*asking)
    answered = [_num_answered(each) - num for each, num in zip(servers, before, strict=True)]
    return Row(
        f"{NUM_CLIENTS} streams over two servers",
        f"{num_open} open, the servers show {running[0]} + {running[1]}; "
        f"{counted(each.outcome for each in answers)}, the gateways count "
        f"{answered[0]} + {answered[1]}",
        "the same numbers, and both servers have some",
        sum(running) == num_open == NUM_CLIENTS
        and sum(answered) == len(answers)
        and min(running) > 0,
    )


async def _kill(url: str, servers: Pair) -> Row:
    """Kill one tritonserver; its supervisor starts it again."""
    async with _load(url) as outcomes:
        await asyncio.sleep(BEFORE_S)
        os.kill(servers[1].pid, signal.SIGKILL)
        killed_s = time.monotonic()
        await asyncio.sleep(AFTER_S)
        await _until_ready(servers[1])
        back_s = time.monotonic() - killed_s
        await asyncio.sleep(AFTER_S)
    found = Counter(each.outcome for each in outcomes)
    late = [each for each in outcomes if each.start_s > killed_s + 1.0 and each.outcome != WHOLE]
    return Row(
        "one server is killed under load",
        f"{counted(found.elements())}; of those that began a second or more after the kill, "
        f"{len(late)} failed; back after {back_s:.0f} s",
        f"at most {NUM_CLIENTS} broken, each with a reason; none that began later",
        found.total() - found[WHOLE] <= NUM_CLIENTS and set(found) <= BROKEN | {WHOLE} and not late,
    )


async def _drain(url: str, servers: Pair) -> Row:
    """Stop one server in the way that operators do."""
    async with _load(url) as outcomes:
        await asyncio.sleep(BEFORE_S)
        start_s = time.monotonic()
        status = await asyncio.to_thread(servers[0].stop)
        seconds = time.monotonic() - start_s
        await asyncio.sleep(AFTER_S)
    found = Counter(each.outcome for each in outcomes)
    return Row(
        "one server is drained under load",
        f"{counted(found.elements())}; it ended after {seconds:.1f} s with status {status}",
        "all whole, status 0",
        set(found) == {WHOLE} and status == 0,
    )


async def _end_last(url: str, server: TritonServer) -> Row:
    """Kill all processes of the only server that is left, the gateway and the supervisor too."""
    async with _load(url) as outcomes:
        await asyncio.sleep(BEFORE_S)
        supervisor = psutil.Process(server.pid).parent()
        assert supervisor is not None
        for each in (supervisor, *supervisor.children(recursive=True)):
            each.kill()
        await asyncio.sleep(1.0)
    found = Counter(each.outcome for each in outcomes)
    return Row(
        "all processes of the last server are killed under load",
        counted(found.elements()),
        f"the {NUM_CLIENTS} streams break off, and the proxy refuses further ones",
        0 < found[CLOSED] <= NUM_CLIENTS
        and {CLOSED, NO_REPLICA} <= set(found) <= {WHOLE, CLOSED, NO_REPLICA},
    )


async def _without_any(url: str) -> Row:
    """Ask when no server is left."""
    async with session() as own, own.post(url + CHATS, json=chat(TEXTS[0], 1)) as response:
        retry = response.headers.get("Retry-After")
        error = (await response.json())["error"]
    return Row(
        "no server is left",
        f"status {response.status}, code {error['code']}, Retry-After {retry}",
        "status 503 with a code and Retry-After",
        response.status == 503 and error["code"] == NO_REPLICA and bool(retry),
    )


@asynccontextmanager
async def _load(url: str) -> AsyncIterator[list[Answer]]:
    """Keep NUM_CLIENTS streams going; the list that is yielded gets each answer."""
    answers: list[Answer] = []
    is_enough = asyncio.Event()
    expected: dict[str, list[int]] = {}

    async def client(own: aiohttp.ClientSession, text: str) -> None:
        while not is_enough.is_set():
            answer = await ask_chat(own, url, chat(text, NUM_TOKENS, stream=True))
            if answer.outcome == WHOLE and answer.token_ids != expected[text]:
                answer.is_complete, answer.error_type = False, "other tokens"
            answers.append(answer)
            await asyncio.sleep(0.0 if answer.outcome == WHOLE else BACK_OFF_S)

    async with session() as own:
        for text in TEXTS:
            plain = await ask_chat(own, url, chat(text, NUM_TOKENS, drafter="none"))
            expected[text] = plain.token_ids
        clients = [asyncio.create_task(client(own, text)) for text in TEXTS]
        yield answers
        is_enough.set()
        await asyncio.gather(*clients)


async def _until_ready(server: TritonServer) -> None:
    limit_s = time.monotonic() + READY_S
    async with session() as own:
        while time.monotonic() < limit_s:
            async with own.get(f"{server.openai_url}/health/ready") as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.5)
    raise TimeoutError(f"the server was not ready again within {READY_S:g} s")


def _num_answered(server: TritonServer) -> int:
    """Return how many chats the gateway has answered with status 200."""
    return gateway_total(server, "specdec_gateway_time_to_first_token_seconds_count")
