"""The ways to hang up on an answer, and the moments at which a client does.

Run as a program, it is a client with STREAMS_PER_KILL streams that waits to be killed.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import grpc

from specdec.clients import GenerationRequest
from specdec.loadtest.reliability.kit.asking import Channels, tokens_of
from specdec.loadtest.reliability.kit.http_answers import (
    NO_ANSWER,
    events_of,
    post_stream,
    token_ids_of,
)

if TYPE_CHECKING:
    from specdec.launch.server_command import ServeSettings


class Way(Enum):
    """A way to hang up, by its name in the table."""

    GRPC_CANCEL = "gRPC cancel"
    CHANNEL_CLOSE = "channel close"
    HTTP_CLOSE = "HTTP close"
    CLIENT_KILL = "client SIGKILL"


class Moment(Enum):
    """A moment of an answer at which a client hangs up, by its name in the table."""

    BEFORE_FIRST = "before the first token"
    IN_PREFILL = "in prefill"
    MID_ROUND = "mid-round"
    AT_LAST = "at the last token"


STREAMS_PER_KILL = 8
KILL_LIMIT_S = 120.0
"""Seconds that a client may take until one of its streams has come to its moment."""
DRAFTERS = ("auto", "none", "lookup", "draft", "eagle3", "tree")
PREFILL_WORDS = 20
"""Words of a prompt that is hung up on while it is read: enough for a hang-up to come in time.

Over HTTP, Triton reads the prompt to its end all the same, so that longer prompts would fill the
server.
"""
LAST = 4
"""Tokens of an answer that is hung up on at its last token."""
TEXT = "Count: one, two, three,"

Reader = Callable[[], Awaitable[list[int] | None]]
"""Reads the tokens of a stream's next response; None once the request has ended or failed."""


@dataclass(frozen=True, slots=True)
class Answering:
    """A client's request, and the moment when the client hangs up."""

    request: GenerationRequest
    num_tokens: int
    """Tokens that it reads first."""
    delay_s: float
    """Longest wait in seconds for another response after these tokens."""


def plan(moment: Moment, draw: random.Random) -> Answering:
    """Draw a request, and when to hang up at this `moment` of its answer."""
    drafter, number = draw.choice(DRAFTERS), draw.randrange(10**6)
    text = f"{number}. {TEXT}"
    if moment is Moment.IN_PREFILL:
        text = f"{number}. " + " ".join(draw.choice(TEXT.split()) for _ in range(PREFILL_WORDS))
    lengths = {Moment.MID_ROUND: draw.randint(1, LAST), Moment.AT_LAST: LAST - 1}
    max_tokens = LAST if moment is Moment.AT_LAST else 200
    delays_s = {
        Moment.BEFORE_FIRST: draw.uniform(0.0, 0.02),
        Moment.IN_PREFILL: draw.uniform(0.02, 0.2),
        Moment.MID_ROUND: draw.uniform(0.0, 0.05),
    }
    request = GenerationRequest(
        text_input=text, max_tokens=max_tokens, min_tokens=max_tokens, drafter=drafter
    )
    return Answering(request, lengths.get(moment, 0), delays_s.get(moment, 0.0))


async def comes_to_moment(read: Reader, answering: Answering) -> bool:
    """Read up to the moment to hang up; return False if the request ended or failed before."""
    num_tokens = 0
    while num_tokens < answering.num_tokens:
        tokens = await read()
        if tokens is None:
            return False
        num_tokens += len(tokens)
    # Without this look at the next response, a refused request would pass for a running one. The
    # reading is not cancelled, since that would be another way to hang up.
    reading = asyncio.ensure_future(read())
    done, _ = await asyncio.wait({reading}, timeout=answering.delay_s)
    return not done or reading.result() is not None


async def cancel_grpc(channels: Channels, number: int, answering: Answering) -> bool:
    """Cancel one stream of a connection that stays open; return False if it had failed before."""
    call = channels.call(number, answering.request)
    is_running = await _is_sent(call) and await comes_to_moment(_grpc_reader(call), answering)
    call.cancel()
    return is_running


async def close_channel(url: str, answering: Answering) -> bool:
    """Close the connection under a stream; return False if the stream had failed before."""
    async with Channels(url, 1) as own:
        call = own.call(0, answering.request)
        return await _is_sent(call) and await comes_to_moment(_grpc_reader(call), answering)


async def close_http(settings: ServeSettings, answering: Answering) -> bool:
    """Reset the HTTP connection of an event stream; return False if it had failed before."""
    try:
        reader, writer = await post_stream(settings, answering.request)
    except OSError:
        return False
    try:
        return await comes_to_moment(_http_reader(reader), answering)
    finally:
        writer.transport.abort()


async def kill_client(url: str, moment: Moment, seed: int) -> int:
    """Kill a process that holds STREAMS_PER_KILL streams once one of them has come to `moment`.

    Returns how many of its streams had not failed before; 0 if none came to `moment`.
    """
    command = [
        sys.executable,
        "-m",
        "specdec.loadtest.reliability.kit.hangup_ways",
        url,
        moment.name,
        str(seed),
    ]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), KILL_LIMIT_S)
    except asyncio.TimeoutError:
        line = b""
    process.kill()
    await process.wait()
    return int(line or 0)


async def _is_sent(call: grpc.aio.StreamStreamCall) -> bool:
    """Wait until the connection has taken the request; return False if there is no connection."""
    try:
        await call.wait_for_connection()
    except grpc.aio.AioRpcError:
        return False
    return True


def _grpc_reader(call: grpc.aio.StreamStreamCall) -> Reader:
    async def read() -> list[int] | None:
        try:
            response = await call.read()
        except grpc.aio.AioRpcError:
            return None
        if response is grpc.aio.EOF or response.error_message:
            return None
        return tokens_of(response.infer_response)[0]

    return read


def _http_reader(reader: asyncio.StreamReader) -> Reader:
    events = events_of(reader)

    async def read() -> list[int] | None:
        try:
            event = await anext(events, None)
        except NO_ANSWER:
            return None
        return None if event is None or "error" in event else token_ids_of(event)

    return read


async def _wait_for_death(url: str, moment: Moment, seed: int) -> None:
    """Begin the streams; once one has come to `moment`, print how many have not failed.

    If the first stream that ends has failed, print 0.
    """
    draw = random.Random(seed)
    async with Channels(url, STREAMS_PER_KILL) as channels:
        answerings = [plan(moment, draw) for _ in range(STREAMS_PER_KILL)]
        calls = [channels.call(n, each.request) for n, each in enumerate(answerings)]
        are_sent = await asyncio.gather(*(_is_sent(each) for each in calls))
        readings = [
            asyncio.create_task(comes_to_moment(_grpc_reader(call), each))
            for call, each, is_sent in zip(calls, answerings, are_sent, strict=True)
            if is_sent
        ]
        await asyncio.wait(readings, return_when=asyncio.FIRST_COMPLETED)
        has_come = any(each.done() and each.result() for each in readings)
        num_running = sum(not each.done() or each.result() for each in readings)
        sys.stdout.write(f"{num_running if has_come else 0}\n")
        sys.stdout.flush()
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(_wait_for_death(sys.argv[1], Moment[sys.argv[2]], int(sys.argv[3])))
