"""Hang up thousands of times, in every way and at every moment of an answer; then load for long."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from clients import GenerationRequest
from loadtest.reliability.asking import Channels, tokens_of
from loadtest.reliability.http_answers import events_of, post, token_ids_of
from loadtest.reliability.resources import (
    Resources,
    resources_of,
    settled,
    slopes_per_hour,
)
from loadtest.reliability.table import Row
from loadtest.reliability.watched import described, watched_server
from specdec.serving.triton_server import TritonServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specdec.serving.server_command import ServeSettings

HANGUPS_PER_ROUND = 3400
MAX_SLOPE_MB = 50.0
"""MB per hour that count as no growth: the server holds about 3 GB, and half an hour measures no
finer."""
WAYS = ("gRPC cancel", "channel close", "HTTP close", "client SIGKILL")
MOMENTS = ("before the first token", "in prefill", "mid-round", "at the last token")
NUM_CLIENTS = 24
"""Clients that hang up at the same time."""
STREAMS_PER_KILL = 8
SAMPLE_PERIOD_S = 10.0
DRAFTERS = ("auto", "none", "lookup", "draft", "eagle3", "tree")
PREFILL_WORDS = 150
"""Words of a prompt that is hung up on while it is read: long enough to be met, and short enough
for thousands of them."""
_TEXT = "Count: one, two, three,"


@dataclass(frozen=True, slots=True)
class Answering:
    """A client's request, and when the client hangs up."""

    request: GenerationRequest
    num_tokens: int
    """Tokens that it reads first."""
    delay_s: float
    """Wait after these tokens."""


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Hang up HANGUPS_PER_ROUND times in each of `rounds`, then load for 5 minutes a round."""
    with watched_server(repository) as watched:
        server = watched.server
        start_s = time.monotonic()
        count = sum(asyncio.run(hang_up(server, HANGUPS_PER_ROUND, seed)) for seed in range(rounds))
        seconds = time.monotonic() - start_s
        left, faults = asyncio.run(settled(server)), watched.faults()
        yield Row(
            f"{count} hang-ups ({', '.join(WAYS)}; {', '.join(MOMENTS)}) in {seconds / 60:.0f} min",
            f"{described(faults)}; {left} requests still in flight",
            "0 deaths, 0 in flight",
            not (faults or left),
        )
        num_whole, samples = asyncio.run(load(server, 5.0 * rounds, rounds))
        left, faults = asyncio.run(settled(server)), watched.faults()
    slopes = slopes_per_hour(samples)
    yield Row(
        f"{5 * rounds} minutes of load by 8 clients after them",
        f"{num_whole} answers; now {samples[-1].rss_mb:.0f} MB, {samples[-1].num_fds:.0f} files, "
        f"{samples[-1].num_threads:.0f} threads, {samples[-1].shm_mb:.0f} MB of shared memory; an "
        f"hour adds {slopes['rss_mb']:+.1f} MB, {slopes['num_fds']:+.1f} files, "
        f"{slopes['num_threads']:+.1f} threads, {slopes['shm_mb']:+.1f} MB; {described(faults)}; "
        f"{left} in flight",
        f"0 deaths, 0 in flight, memory within ±{MAX_SLOPE_MB:g} MB an hour",
        not (faults or left) and abs(slopes["rss_mb"]) <= MAX_SLOPE_MB,
    )


def plan(moment: str, draw: random.Random) -> Answering:
    """Draw a request and the moment to hang up in it."""
    drafter, number = draw.choice(DRAFTERS), draw.randrange(10**6)
    text = f"{number}. {_TEXT}"
    if moment == "in prefill":
        text = f"{number}. " + " ".join(draw.choice(_TEXT.split()) for _ in range(PREFILL_WORDS))
    num_tokens = {"mid-round": draw.randint(1, 20), "at the last token": 7}.get(moment, 0)
    max_tokens = 8 if moment == "at the last token" else 200
    delay_s = {
        "before the first token": draw.uniform(0.0, 0.02),
        "in prefill": draw.uniform(0.02, 0.5),
        "mid-round": draw.uniform(0.0, 0.05),
    }.get(moment, 0.0)
    request = GenerationRequest(
        text_input=text, max_tokens=max_tokens, min_tokens=max_tokens, drafter=drafter
    )
    return Answering(request, num_tokens, delay_s)


async def cancel_grpc(channels: Channels, number: int, answering: Answering) -> bool:
    """Cancel one stream of a connection that goes on; False if it had failed before."""
    call = channels.call(number, answering.request)
    is_running = await _read_some(call, answering)
    call.cancel()
    return is_running


async def close_channel(url: str, answering: Answering) -> bool:
    """Close the connection under a stream; False if that had failed before."""
    async with Channels(url, 1) as own:
        return await _read_some(own.call(0, answering.request), answering)


async def close_http(settings: ServeSettings, answering: Answering) -> bool:
    """Reset an HTTP connection under an event stream; False if that had failed before."""
    request = answering.request
    fields = {
        "text_input": request.text_input,
        "stream": True,
        "max_tokens": request.max_tokens,
        "drafter": request.drafter,
    }
    reader, writer = await post(settings, "generate_stream", fields)
    num_tokens = 0
    events = events_of(reader)
    try:
        while num_tokens < answering.num_tokens:
            event = await anext(events, None)
            if event is None or "error" in event:
                return False
            num_tokens += len(token_ids_of(event))
        await asyncio.sleep(answering.delay_s)
        return True
    finally:
        writer.transport.abort()


async def kill_client(url: str, moment: str, seed: int) -> bool:
    """Kill a process that holds STREAMS_PER_KILL streams once one of them has come to `moment`.

    Returns False if that one had failed before.
    """
    command = [sys.executable, "-m", "loadtest.reliability.hangups", url, moment, str(seed)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    line = await process.stdout.readline()
    process.kill()
    await process.wait()
    return line.strip() == moment.encode()


async def hang_up(server: TritonServer, count: int, seed: int) -> int:
    """Hang up `count` times, NUM_CLIENTS at once; return how often in fact.

    A request that failed before its client hung up does not count.
    """
    draw = random.Random(seed)
    done = 0

    async def client(number: int, channels: Channels) -> None:
        nonlocal done
        while done < count:
            moment = draw.choice(MOMENTS)
            answering = plan(moment, draw)
            was_running = False
            with suppress(OSError):
                match draw.choice(WAYS[:-1]):
                    case "gRPC cancel":
                        was_running = await cancel_grpc(channels, number, answering)
                    case "channel close":
                        was_running = await close_channel(server.grpc_url, answering)
                    case "HTTP close":
                        was_running = await close_http(server.settings, answering)
            done += was_running  # not `done += await …`, which would read it before the wait

    async def killer() -> None:
        nonlocal done
        while done < count:
            moment, seed = draw.choice(MOMENTS), draw.randrange(10**6)
            was_running = await kill_client(server.grpc_url, moment, seed)
            done += STREAMS_PER_KILL * was_running

    async with Channels(server.grpc_url, NUM_CLIENTS) as channels:
        await asyncio.gather(killer(), *(client(n, channels) for n in range(NUM_CLIENTS)))
    return done


async def load(server: TritonServer, minutes: float, seed: int) -> tuple[int, list[Resources]]:
    """Keep eight clients asking; return how many answers were whole, and what the server held."""
    draw, num_whole = random.Random(seed), 0
    end_s = time.monotonic() + 60 * minutes
    samples: list[Resources] = []

    async def client(number: int, channels: Channels) -> None:
        nonlocal num_whole
        while time.monotonic() < end_s:
            request = GenerationRequest(
                text_input=f"{draw.randrange(200)}. {_TEXT}",
                max_tokens=draw.randint(8, 120),
                drafter=draw.choice(DRAFTERS),
                temperature=draw.choice((0.0, 0.8)),
            )
            answer = await channels.ask(number, request)
            num_whole += answer.is_complete

    async def watch() -> None:
        while time.monotonic() < end_s:
            samples.append(await asyncio.to_thread(resources_of, server))
            await asyncio.sleep(SAMPLE_PERIOD_S)

    async with Channels(server.grpc_url, 8) as channels:
        await asyncio.gather(watch(), *(client(n, channels) for n in range(8)))
    return num_whole, samples


async def _read_some(call: grpc.aio.StreamStreamCall, answering: Answering) -> bool:
    """Read up to the moment to hang up; False if the request failed before."""
    num_tokens = 0
    try:
        while num_tokens < answering.num_tokens:
            response = await call.read()
            if response is grpc.aio.EOF or response.error_message:
                return False
            num_tokens += len(tokens_of(response.infer_response)[0])
        await asyncio.sleep(answering.delay_s)
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        return False
    return True


async def _wait_for_death(url: str, moment: str, seed: int) -> None:
    """Begin STREAMS_PER_KILL streams; write a line when one has come to `moment`."""
    draw = random.Random(seed)
    async with Channels(url, STREAMS_PER_KILL) as channels:
        answerings = [plan(moment, draw) for _ in range(STREAMS_PER_KILL)]
        calls = [channels.call(n, each.request) for n, each in enumerate(answerings)]
        readings = [
            asyncio.create_task(_read_some(*each)) for each in zip(calls, answerings, strict=True)
        ]
        first, _ = await asyncio.wait(readings, return_when=asyncio.FIRST_COMPLETED)
        has_come = any(each.result() for each in first)
        sys.stdout.write(f"{moment if has_come else 'failed'}\n")
        sys.stdout.flush()
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(_wait_for_death(sys.argv[1], sys.argv[2], int(sys.argv[3])))
