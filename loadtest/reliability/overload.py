"""Ask ten times the limit over HTTP at once."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from loadtest.reliability.crashes import CrashWatch
from loadtest.reliability.resources import settled
from loadtest.reliability.table import Row, counted, spread
from specdec.serving.server_command import ServeSettings
from specdec.serving.triton_server import TritonServer

NUM_REQUESTS = 640
NUM_TOKENS = 32
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The outcome of one request."""

    kind: str
    """`whole`, or the HTTP status with the error's type."""
    seconds: float


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Ask NUM_REQUESTS at once, `rounds` times, on one server."""
    with tempfile.TemporaryDirectory() as folder, TritonServer(repository) as server:
        crashes, pid = CrashWatch(Path(folder)), server.pid
        answers = [each for _ in range(rounds) for each in asyncio.run(ask_all(server))]
        left = asyncio.run(settled(server))
        found, is_same = crashes.found(), server.pid == pid
    # Triton 2.51 answers every error of a decoupled model with status 400.
    others = {each.kind for each in answers} - {"whole", "400 overloaded"}
    refused_s = [each.seconds for each in answers if each.kind != "whole"]
    yield Row(
        f"{NUM_REQUESTS} requests at once over HTTP, ten times the limit (×{rounds})",
        f"{counted(each.kind for each in answers)}; refused after "
        f"{spread(refused_s) if refused_s else 'never'}; crashes: {len(found)}; {left} in flight",
        "whole or a clear error, 0 deaths",
        not others and is_same and not found and not left,
    )


async def ask_all(server: TritonServer) -> list[HttpAnswer]:
    """Send all at once, each on a connection of its own."""
    return await asyncio.gather(*(_ask(server, number) for number in range(NUM_REQUESTS)))


async def _ask(server: TritonServer, number: int) -> HttpAnswer:
    settings = server.settings
    body = json.dumps(
        {"text_input": f"{number}. Count: one, two,", "max_tokens": NUM_TOKENS}
    ).encode()
    head = (
        "POST /v2/models/specdec/generate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    start_s = time.monotonic()
    try:
        text = await asyncio.wait_for(_exchange(settings, head + body), TIMEOUT_S)
    except (OSError, asyncio.TimeoutError) as error:
        return HttpAnswer(type(error).__name__, time.monotonic() - start_s)
    if b"{" not in text:
        return HttpAnswer("broken connection", time.monotonic() - start_s)
    status = int(text.split(b" ", 2)[1])
    # Triton sends some bodies in chunks: the JSON object is what counts.
    payload = json.loads(text[text.index(b"{") : text.rindex(b"}") + 1])
    kind = str(payload.get("error", "")).split(":")[0]
    return HttpAnswer(
        "whole" if status == HTTPStatus.OK else f"{status} {kind}", time.monotonic() - start_s
    )


async def _exchange(settings: ServeSettings, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(settings.reachable_host, settings.http_port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer
