"""Send ten times as many requests as the server takes, over HTTP and at once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from specdec.launch.server_command import ServeSettings
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.reliability.kit.asking import WHOLE, error_type_of
from specdec.loadtest.reliability.kit.http_answers import post
from specdec.loadtest.reliability.kit.resources import settled
from specdec.loadtest.reliability.kit.table import Row, counted, spread
from specdec.loadtest.reliability.kit.watched import described, watched_server

NUM_REQUESTS = 640
NUM_TOKENS = 32
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The outcome of one request."""

    kind: str
    """WHOLE, the error's type with the HTTP status, or the kind of a connection's failure."""
    seconds: float


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Send NUM_REQUESTS at once, `rounds` times, on one server."""
    with watched_server(repository) as watched:
        answers = [each for _ in range(rounds) for each in asyncio.run(ask_all(watched.server))]
        left = asyncio.run(settled(watched.server))
        faults = watched.faults()
    # Triton 2.51 answers every error of a decoupled model with status 400.
    others = {each.kind for each in answers} - {WHOLE, "overloaded (status 400)"}
    refused_s = [each.seconds for each in answers if each.kind != WHOLE]
    yield Row(
        f"{NUM_REQUESTS} requests at once over HTTP, ten times the limit (×{rounds})",
        f"{counted(each.kind for each in answers)}"
        f"{', refusals after ' + spread(refused_s) if refused_s else ''}; {described(faults)}; "
        f"{left} in flight",
        "whole or a clear error, 0 deaths",
        not (others or faults or left),
    )


async def ask_all(server: TritonServer) -> list[HttpAnswer]:
    """Send all requests at once, each on a connection of its own."""
    return await asyncio.gather(*(_ask(server, number) for number in range(NUM_REQUESTS)))


async def _ask(server: TritonServer, number: int) -> HttpAnswer:
    fields = {"text_input": f"{number}. Count: one, two,", "max_tokens": NUM_TOKENS}
    start_s = time.monotonic()
    try:
        text = await asyncio.wait_for(_exchange(server.settings, fields), TIMEOUT_S)
    except (OSError, asyncio.TimeoutError) as error:
        return HttpAnswer(type(error).__name__, time.monotonic() - start_s)
    if b"{" not in text:
        return HttpAnswer("broken connection", time.monotonic() - start_s)
    status = int(text.split(b" ", 2)[1])
    # Triton sends some bodies in chunks; only the JSON object counts.
    payload = json.loads(text[text.index(b"{") : text.rindex(b"}") + 1])
    error_type = error_type_of(str(payload.get("error", "")))
    kind = WHOLE if status == HTTPStatus.OK else f"{error_type} (status {status})"
    return HttpAnswer(kind, time.monotonic() - start_s)


async def _exchange(settings: ServeSettings, fields: dict[str, Any]) -> bytes:
    reader, writer = await post(settings, "generate", fields)
    answer = await reader.read()
    writer.close()
    return answer
