"""Stop a server in every state: how long it takes, what clients get, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
from tritonclient.grpc import service_pb2_grpc

from clients import GenerationRequest
from clients.grpc_client import encode_request
from loadtest.reliability.asking import WHOLE, Answer, Channels, error_type_of, tokens_of
from loadtest.reliability.crashes import CrashWatch
from loadtest.reliability.http_answers import events_of, post, token_ids_of
from loadtest.reliability.serving import comes_up, serve_command
from loadtest.reliability.table import Row, counted, spread
from specdec.health.board import SHARED_MEMORY
from specdec.health.processes import all_processes, environment_of
from specdec.serving.server_command import ServeSettings, with_free_ports
from specdec.serving.supervisor import STOP_GRACE_S

DRAIN_S = 8.0
SITUATIONS = (
    "idle",
    "8 gRPC and 4 HTTP streams",
    "streams longer than the drain limit",
    "idle keep-alive connections",
    "open gRPC stream, idle",
    "during start-up",
    "under overload",
)
EXPECTED = {
    "8 gRPC and 4 HTTP streams": {WHOLE},
    "under overload": {WHOLE, "shutting_down", "overloaded"},
}
"""Outcomes that a stream may have, where they differ from whole or `shutting_down`."""
SHORT, LONG = 24, 4000
"""Tokens of an answer that ends within the drain limit, and of one that does not."""


@dataclass(frozen=True, slots=True)
class StopResult:
    """One stop."""

    situation: str
    seconds: float
    status: int
    outcomes: tuple[str, ...]
    """Answer.outcome of each stream."""
    leftovers: tuple[str, ...]
    """Processes and /dev/shm entries a moment after the end, and crashes in the kernel's log."""


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Stop a server in each situation, `rounds` times."""
    limit_s = DRAIN_S + STOP_GRACE_S
    for situation in SITUATIONS:
        results = [asyncio.run(stop_in(situation, repository)) for _ in range(rounds)]
        seconds = [each.seconds for each in results]
        leftovers = [each for result in results for each in result.leftovers]
        outcomes = [each for result in results for each in result.outcomes]
        statuses = sorted({each.status for each in results})
        yield Row(
            f"stop, {situation} (×{rounds})",
            f"{spread(seconds)}; exit {', '.join(map(str, statuses))}; streams: "
            f"{counted(outcomes) or 'none'}; leftovers and crashes: "
            f"{', '.join(leftovers) or 'none'}",
            f"≤ {limit_s:g} s, exit 0, streams whole or told why, none left",
            max(seconds) <= limit_s
            and statuses == [0]
            and not leftovers
            and set(outcomes) <= EXPECTED.get(situation, {WHOLE, "shutting_down"}),
        )


async def stop_in(situation: str, repository: Path) -> StopResult:
    """Start a server, bring it into the situation, stop it by SIGTERM, and look."""
    with tempfile.TemporaryDirectory(prefix="specdec-stops-") as scratch:
        folder = Path(scratch)
        crashes = CrashWatch(folder)
        settings = with_free_ports(ServeSettings(repository, "127.0.0.1", 0, 0, 0, 0))
        command = serve_command(settings, "--drain-s", str(DRAIN_S))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
                command, cwd=folder, stdout=log, stderr=subprocess.STDOUT
            )
        marks = f"specdec_{process.pid}_"
        if situation == "during start-up":
            await asyncio.sleep(2.0)
        elif not await asyncio.to_thread(comes_up, process, settings):
            process.kill()
            raise TimeoutError((folder / "log").read_text()[-2000:])
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(process.kill)  # where the bench itself fails
            running = await _bring_into(situation, settings, stack)
            start_s = time.monotonic()
            os.kill(process.pid, signal.SIGTERM)
            status = await asyncio.to_thread(process.wait)
            seconds = time.monotonic() - start_s
            answers = await asyncio.gather(*running)
        await asyncio.sleep(0.3)
        leftovers = [each.name for each in SHARED_MEMORY.glob(f"{marks}*")]
        leftovers += [
            f"process {each.pid}"
            for each in all_processes()
            if any(marks in entry for entry in environment_of(each.pid))
        ]
        leftovers += crashes.found()
    return StopResult(
        situation,
        round(seconds, 2),
        status,
        tuple(each.outcome for each in answers),
        tuple(leftovers),
    )


async def _bring_into(
    situation: str, settings: ServeSettings, stack: contextlib.AsyncExitStack
) -> list[asyncio.Task[Answer]]:
    """Return the answers that are under way when the stop comes."""
    grpc_url = f"{settings.url_host}:{settings.grpc_port}"
    if situation == "idle keep-alive connections":
        for port in (settings.http_port, settings.metrics_port, settings.health_port):
            await _open_connection(settings.reachable_host, port, stack)
        return []
    counts = {"8 gRPC and 4 HTTP streams": 8, "streams longer than the drain limit": 8}
    count = counts.get(situation, 64 if situation == "under overload" else 0)
    if situation == "open gRPC stream, idle":
        await _open_stream(grpc_url, stack)
        return []
    if not count:
        return []
    channels = await stack.enter_async_context(Channels(grpc_url, 4 * count))
    size = LONG if situation == "streams longer than the drain limit" else SHORT
    size = size if count == 8 else 40
    started = [asyncio.Event() for _ in range(count)]
    running = [
        asyncio.create_task(channels.ask(n, _request(n, size), started[n])) for n in range(count)
    ]
    await asyncio.gather(*(each.wait() for each in started))
    if situation == "8 gRPC and 4 HTTP streams":
        running += [asyncio.create_task(_http_stream(settings, n, size)) for n in range(4)]
        await asyncio.sleep(1.0)
    if situation == "under overload":
        running += [asyncio.create_task(channels.ask(n, _request(n, 4))) for n in range(3 * count)]
        await asyncio.sleep(0.2)
    return running


def _request(number: int, max_tokens: int) -> GenerationRequest:
    text = f"{number}. Count: one, two, three,"
    return GenerationRequest(text_input=text, max_tokens=max_tokens, min_tokens=max_tokens)


async def _http_stream(settings: ServeSettings, number: int, max_tokens: int) -> Answer:
    """Ask over HTTP's generate_stream, and read the answer to its end."""
    answer = Answer(start_s=time.monotonic())
    fields = {
        "text_input": f"{number}. Count: one, two,",
        "stream": True,
        "max_tokens": max_tokens,
        "min_tokens": max_tokens,
    }
    reader, writer = await post(settings, "generate_stream", fields)
    with contextlib.suppress(OSError):
        async for event in events_of(reader):
            answer.token_ids += token_ids_of(event)
            answer.is_complete |= bool(event.get("finish_reason"))
            if "error" in event:
                answer.error_type = error_type_of(str(event["error"]))
    answer.last_s = time.monotonic()
    writer.close()
    return answer


async def _open_stream(grpc_url: str, stack: contextlib.AsyncExitStack) -> None:
    """Get one whole answer on a gRPC stream, and leave the stream open."""
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(grpc_url))
    call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer()
    stack.callback(call.cancel)
    await call.write(encode_request(_request(0, 4), "specdec", stream=True))
    is_complete = False
    while not is_complete:
        response = await call.read()
        if response is grpc.aio.EOF or response.error_message:
            raise RuntimeError(f"the first answer failed: {response}")
        is_complete = tokens_of(response.infer_response)[1]


async def _open_connection(host: str, port: int, stack: contextlib.AsyncExitStack) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.read(1024)
    stack.callback(writer.close)
