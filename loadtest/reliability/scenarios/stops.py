"""Stop a server in every state: its time, what clients get, and what is left over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from tritonclient.grpc import service_pb2_grpc

from specdec.clients import GenerationRequest
from specdec.clients.grpc_messages import encode_request
from specdec.health.board import SHARED_MEMORY
from specdec.health.processes import all_processes, environment_of
from specdec.launch.server_command import REGION_PREFIX, ServeSettings, with_free_ports
from specdec.launch.supervisor import STOP_GRACE_S
from specdec.loadtest.reliability.kit.asking import (
    ANSWER_LIMIT_S,
    WHOLE,
    Answer,
    Channels,
    tokens_of,
)
from specdec.loadtest.reliability.kit.crashes import CrashWatch
from specdec.loadtest.reliability.kit.http_answers import ask_over_http
from specdec.loadtest.reliability.kit.serving import START_LIMIT_S, comes_up, serve_command
from specdec.loadtest.reliability.kit.table import Row, counted, listed, spread

DRAIN_S = 8.0
END_LIMIT_S = 60.0
"""Seconds after which a server that does not end is killed; its status is then -9."""
LOADING_S = 1.0
"""Seconds after its start at which tritonserver is loading its models."""
ENDED = frozenset({WHOLE, "shutting_down"})
OVERLOADED = ENDED | {"overloaded"}


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server's state at the time of the SIGTERM."""

    name: str
    num_grpc: int = 0
    """Streams over gRPC that have their first token."""
    num_http: int = 0
    max_tokens: int = 32
    """Tokens of their answers; 32 end within the drain limit, and 4,000 do not."""
    num_refused: int = 0
    """Further requests, sent at once, most of which find no slot."""
    outcomes: frozenset[str] = ENDED
    """Outcomes that a stream may have."""


KEEP_ALIVE = ServerState("idle keep-alive connections")
OPEN_STREAM = ServerState("open gRPC stream, idle")
STARTING = ServerState("during start-up")
STREAMING = ServerState("8 gRPC and 4 HTTP streams", 8, 4, outcomes=frozenset({WHOLE}))
LONG_STREAMS = ServerState("streams longer than the drain limit", num_grpc=8, max_tokens=4000)
STATES = (
    ServerState("idle"),
    STREAMING,
    LONG_STREAMS,
    KEEP_ALIVE,
    OPEN_STREAM,
    STARTING,
    ServerState("under overload", 64, 0, 40, num_refused=192, outcomes=OVERLOADED),
)


@dataclass(frozen=True, slots=True)
class StopResult:
    """The result of one stop."""

    state: ServerState
    seconds: float
    status: int
    outcomes: tuple[str, ...]
    """Answer.outcome of each stream."""
    num_open: int
    """Streams that had not ended at the SIGTERM."""
    leftovers: tuple[str, ...]
    """Processes and /dev/shm entries left a moment after the end, and crashes that were found."""


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Stop a server in each state, `rounds` times."""
    for state in STATES:
        yield row_of([asyncio.run(stop_in(state, repository)) for _ in range(rounds)])


def row_of(results: Sequence[StopResult]) -> Row:
    """Return the row of all stops in one state."""
    state, limit_s = results[0].state, DRAIN_S + STOP_GRACE_S
    seconds = [each.seconds for each in results]
    leftovers = [each for result in results for each in result.leftovers]
    outcomes = [each for result in results for each in result.outcomes]
    statuses = sorted({each.status for each in results})
    fewest_open = min(each.num_open for each in results)
    streams = f"{counted(outcomes)} (at least {fewest_open} open at the signal)"
    return Row(
        f"stop, {state.name} (×{len(results)})",
        f"{spread(seconds)}; exit {', '.join(map(str, statuses))}; streams: "
        f"{streams if outcomes else 'none'}; leftovers and crashes: {len(leftovers)}"
        f"{listed(leftovers)}",
        f"≤ {limit_s:g} s, exit 0, streams open at the signal, whole or ended with a reason, "
        "none left",
        max(seconds) <= limit_s
        and statuses == [0]
        and not leftovers
        and (fewest_open > 0 or not outcomes)
        and set(outcomes) <= state.outcomes,
    )


async def stop_in(state: ServerState, repository: Path) -> StopResult:
    """Start a server, bring it into the state, stop it by SIGTERM, and collect the results.

    Raises TimeoutError with the end of the log if the server does not start.
    """
    with tempfile.TemporaryDirectory(prefix="specdec-stops-") as scratch:
        folder = Path(scratch)
        crashes = CrashWatch(folder)
        settings = with_free_ports(ServeSettings(repository, "127.0.0.1", 0, 0, 0, 0))
        pid_file = folder / "server.pid"
        command = serve_command(settings, "--drain-s", str(DRAIN_S), "--pid-file", str(pid_file))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
                command, cwd=folder, stdout=log, stderr=subprocess.STDOUT
            )
        marks = f"{REGION_PREFIX}{process.pid}_"
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(_kill, process)  # Ends the server if the bench itself fails.
            if state is STARTING:
                await asyncio.to_thread(_wait_until_loading, process, pid_file)
            elif not await asyncio.to_thread(comes_up, process, settings):
                raise TimeoutError((folder / "log").read_text()[-2000:])
            running = await _bring_into(state, settings, stack)
            num_open = sum(not each.done() for each in running)
            start_s = time.monotonic()
            os.kill(process.pid, signal.SIGTERM)
            status = await asyncio.to_thread(_end_of, process)
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
        state,
        round(seconds, 2),
        status,
        tuple(each.outcome for each in answers),
        num_open,
        tuple(leftovers),
    )


def _wait_until_loading(process: subprocess.Popen[bytes], pid_file: Path) -> None:
    """Wait until tritonserver loads its models. Raises TimeoutError if it does not get there."""
    limit_s = time.monotonic() + START_LIMIT_S
    while not pid_file.exists():
        if process.poll() is not None or time.monotonic() > limit_s:
            raise TimeoutError("tritonserver was not started")
        time.sleep(0.05)
    time.sleep(LOADING_S)


def _end_of(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end and return the exit status; kill a process that does not end."""
    try:
        return process.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        return _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> int:
    process.kill()
    return process.wait()


async def _bring_into(
    state: ServerState, settings: ServeSettings, stack: contextlib.AsyncExitStack
) -> list[asyncio.Task[Answer]]:
    """Bring the server into the state and return the answers that are under way."""
    grpc_url = f"{settings.url_host}:{settings.grpc_port}"
    if state is KEEP_ALIVE:
        for port in (settings.http_port, settings.metrics_port, settings.health_port):
            await _open_connection(settings.reachable_host, port, stack)
    if state is OPEN_STREAM:
        await _open_stream(grpc_url, stack)
    if not state.num_grpc:
        return []
    num_streams = state.num_grpc + state.num_refused
    channels = await stack.enter_async_context(Channels(grpc_url, num_streams))
    started = [asyncio.Event() for _ in range(state.num_grpc + state.num_http)]
    running = []
    for number, event in enumerate(started):
        request = _request(number, state.max_tokens)
        if number < state.num_grpc:
            answer = channels.ask(number, request, event)
        else:
            answer = ask_over_http(settings, request, event)
        running.append(asyncio.create_task(answer))
    await asyncio.gather(*(each.wait() for each in started))
    if state.num_refused:
        more = range(state.num_refused)
        running += [asyncio.create_task(channels.ask(n, _request(n, 4))) for n in more]
        await asyncio.sleep(0.2)
    return running


def _request(number: int, max_tokens: int) -> GenerationRequest:
    text = f"{number}. Count: one, two, three,"
    return GenerationRequest(text_input=text, max_tokens=max_tokens, min_tokens=max_tokens)


async def _open_stream(grpc_url: str, stack: contextlib.AsyncExitStack) -> None:
    """Get one whole answer on a gRPC stream, and leave the stream open."""
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(grpc_url))
    call = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(
        timeout=ANSWER_LIMIT_S
    )
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
    await asyncio.wait_for(reader.read(1024), ANSWER_LIMIT_S)
    stack.callback(writer.close)
