"""Clients that stop reading for a minute, beside others that read on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from specdec.clients import GenerationRequest
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.reliability.kit.asking import Channels, tokens_of
from specdec.loadtest.reliability.kit.http_answers import (
    NO_ANSWER,
    events_of,
    post_stream,
    token_ids_of,
)
from specdec.loadtest.reliability.kit.resources import settled
from specdec.loadtest.reliability.kit.table import Row, counted
from specdec.loadtest.reliability.kit.watched import described, watched_server

STOPS_READING_S = 60.0
NUM_TOKENS = 1500
NUM_WITNESSES = 4
RECEIVE_BUFFER_BYTES = 4096
"""Receive buffer, which the kernel doubles: about a dozen events of some 300 bytes each."""
WITNESS = GenerationRequest(text_input="Count: one, two, three,", max_tokens=100, min_tokens=100)
SLOW = GenerationRequest(
    text_input="Tell a long story.", max_tokens=NUM_TOKENS, min_tokens=NUM_TOKENS
)


@dataclass(frozen=True, slots=True)
class SlowResult:
    """The answers of clients that stopped reading, and of those beside them."""

    slow: tuple[str, ...]
    """`exact` or the failure, first over gRPC and then over HTTP."""
    num_witnesses: int
    num_changed: int
    slowest_witness_s: float
    num_left: int
    """Requests in flight after the end."""


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Stop reading over gRPC and over HTTP, `rounds` times."""
    with watched_server(repository) as watched:
        results = [asyncio.run(stop_reading(watched.server)) for _ in range(rounds)]
        faults = watched.faults()
    slow = [each for result in results for each in result.slow]
    changed, left = (
        sum(getattr(each, name) for each in results) for name in ("num_changed", "num_left")
    )
    yield Row(
        f"a gRPC and an HTTP reader stop for {STOPS_READING_S:g} s in an answer of {NUM_TOKENS} "
        f"tokens (×{rounds})",
        f"their answers: {counted(slow)}; beside them "
        f"{sum(each.num_witnesses for each in results)} answers, {changed} changed, the slowest "
        f"{max(each.slowest_witness_s for each in results):.1f} s; {described(faults)}; "
        f"{left} in flight after",
        "all exact, 0 in flight",
        set(slow) == {"exact"} and not (changed or faults or left),
    )


async def stop_reading(server: TritonServer) -> SlowResult:
    """Begin both answers, read nothing for a while, then read them to the end."""
    async with Channels(server.grpc_url, NUM_WITNESSES + 2) as channels:
        expected = (await channels.ask(0, WITNESS)).token_ids
        whole = (await channels.ask(0, SLOW)).token_ids
        end_s = time.monotonic() + STOPS_READING_S
        num_witnesses = num_changed = 0
        slowest_s = 0.0

        async def witness(number: int) -> None:
            nonlocal num_witnesses, num_changed, slowest_s
            while time.monotonic() < end_s:
                answer = await channels.ask(number, WITNESS)
                num_witnesses += 1
                num_changed += answer.token_ids != expected
                slowest_s = max(slowest_s, answer.last_s - answer.start_s)

        slow = await asyncio.gather(
            _over_grpc(server.grpc_url, whole),
            _over_http(server, whole),
            *(witness(n) for n in range(NUM_WITNESSES)),
        )
    left = await settled(server)
    return SlowResult(
        tuple(each for each in slow if each), num_witnesses, num_changed, slowest_s, left
    )


async def _over_grpc(url: str, expected: list[int]) -> str:
    tokens: list[int] = []
    async with Channels(url, 1) as own:
        call = own.call(0, SLOW)
        try:
            await asyncio.sleep(STOPS_READING_S)
            async for response in call:
                if response.error_message:
                    return str(response.error_message)
                tokens += tokens_of(response.infer_response)[0]
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
        finally:
            call.cancel()
    return "exact" if tokens == expected else f"{len(tokens)} other tokens"


async def _over_http(server: TritonServer, expected: list[int]) -> str:
    # With a buffer of its own size, the kernel would take in the whole answer.
    reader, writer = await post_stream(
        server.settings, SLOW, receive_buffer_bytes=RECEIVE_BUFFER_BYTES
    )
    await asyncio.sleep(STOPS_READING_S)
    tokens: list[int] = []
    try:
        async for event in events_of(reader):
            if "error" in event:
                return str(event["error"])
            tokens += token_ids_of(event)
    except NO_ANSWER as error:
        return type(error).__name__
    finally:
        writer.close()
    return "exact" if tokens == expected else f"{len(tokens)} other tokens"
