"""Idle connections and slow readers at the gateway, beside streams that must not notice them."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from specdec.launch.triton_server import TritonServer
from specdec.loadtest.kit.ratios import Timed, ratio
from specdec.loadtest.reliability.kit.asking import WHOLE
from specdec.loadtest.reliability.kit.gateway_answers import CHATS, ask_chat, chat, session
from specdec.loadtest.reliability.kit.http_answers import Connection
from specdec.loadtest.reliability.kit.resources import num_at_gateway, settled
from specdec.loadtest.reliability.kit.table import Row, counted
from specdec.loadtest.reliability.kit.watched import described, watched_server

NUM_IDLE = 500
NUM_SLOW = 200
NUM_STREAMS = 16
NUM_TOKENS = 64
SLOW_TOKENS = 32
"""Tokens of each answer that is read slowly."""
SLOW_AT_ONCE = 32
"""Slow readers that ask at the same time: fewer than the server's slots."""
RECEIVE_BUFFER_BYTES = 2048
READ_BYTES, READ_PERIOD_S = 128, 5.0
"""A slow reader takes READ_BYTES every READ_PERIOD_S, so that it is not cut off."""
NUM_TURNS_PER_ROUND, NUM_PASSES = 3, 2
"""Turns of each arm, and the passes of the streams in a turn. Filling the gateway takes long."""
MIN_RATIO, MAX_WIDTH = 0.97, 0.3
"""Least upper end of the ratio's interval, and its largest width: a wider one shows nothing."""
TEXTS = [f"Count {number}: one, two, three," for number in range(NUM_STREAMS)]


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Run the streams with and without the others by turns."""
    with watched_server(repository, has_openai=True) as watched:
        yield asyncio.run(_compare(watched.server, NUM_TURNS_PER_ROUND * rounds))
        left = asyncio.run(settled(watched.server))
        still_open = num_at_gateway(watched.server)
        faults = watched.faults()
        yield Row(
            "after it",
            f"{left} in flight, {still_open} running at the gateway; {described(faults)}",
            "0, 0, no fault",
            not (left or still_open or faults),
        )


async def _compare(server: TritonServer, num_turns: int) -> Row:
    """Return the row of the streams' speed beside the others ÷ alone."""
    beside: dict[str, Timed] = {}
    alone: dict[str, Timed] = {}
    outcomes: list[str] = []
    unread: list[int] = []
    await _pass(server, outcomes)  # Warms up.
    for turn in range(num_turns):
        for number in range(NUM_PASSES):
            alone[f"{turn}-{number}"] = await _pass(server, outcomes)
        async with _others(server):
            unread.append(num_at_gateway(server))
            for number in range(NUM_PASSES):
                beside[f"{turn}-{number}"] = await _pass(server, outcomes)
    found = ratio(beside, alone)
    return Row(
        f"{NUM_STREAMS} streams beside {NUM_IDLE} idle connections and {NUM_SLOW} slow readers "
        f"(×{len(beside)})",
        f"tokens/s with them ÷ without: {found}; answers: {counted(outcomes)}; the "
        f"system's buffers held all but {max(unread)} of the slow answers",
        f"all whole, the interval reaches {MIN_RATIO} and is at most {MAX_WIDTH} wide",
        found.high >= MIN_RATIO
        and found.high - found.low <= MAX_WIDTH
        and set(outcomes) == {WHOLE},
    )


async def _pass(server: TritonServer, outcomes: list[str]) -> Timed:
    """Run all streams at once; return their tokens and seconds."""
    async with session() as own:
        start_s = time.monotonic()
        bodies = [chat(text, NUM_TOKENS, stream=True) for text in TEXTS]
        answers = await asyncio.gather(*(ask_chat(own, server.openai_url, each) for each in bodies))
    outcomes += [each.outcome for each in answers]
    return Timed(sum(len(each.token_ids) for each in answers), time.monotonic() - start_s)


@asynccontextmanager
async def _others(server: TritonServer) -> AsyncIterator[None]:
    """Open the idle connections and the slow readers; close them at the end."""
    url = urlsplit(server.openai_url)
    address = url.hostname, url.port
    idle: list[Connection] = []
    readers: list[asyncio.Task[None]] = []
    try:
        for begin in range(0, NUM_SLOW, SLOW_AT_ONCE):
            for _ in range(begin, min(begin + SLOW_AT_ONCE, NUM_SLOW)):
                asked = asyncio.Event()
                readers.append(asyncio.create_task(_read_slowly(address, asked)))
                await asked.wait()
            # The engine has no more work for them then.
            await settled(server)
        # Last, because the gateway closes connections that are idle for long.
        idle += [await asyncio.open_connection(*address) for _ in range(NUM_IDLE)]
        yield
        num_closed = sum(reader.at_eof() for reader, _ in idle)
        if num_closed:
            raise RuntimeError(f"{num_closed} idle connections were closed meanwhile")
    finally:
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        for _, writer in idle:
            writer.close()


async def _read_slowly(address: tuple[str | None, int | None], asked: asyncio.Event) -> None:
    """Ask for a stream, and read it READ_BYTES at a time."""
    body = json.dumps(chat(TEXTS[0], SLOW_TOKENS, stream=True)).encode()
    head = f"POST {CHATS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    own = socket.socket()
    own.setblocking(False)
    # The size counts only if it is set before the connection is made.
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    loop = asyncio.get_running_loop()
    with suppress(OSError), own:
        await loop.sock_connect(own, address)
        await loop.sock_sendall(own, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        asked.set()
        while await loop.sock_recv(own, READ_BYTES):  # noqa: ASYNC110 - it reads slowly
            await asyncio.sleep(READ_PERIOD_S)
    asked.set()
