"""Requests to Triton's HTTP endpoints over connections that can be read slowly or cut off.

An event stream that is read to its end gives an `Answer` like that of a gRPC stream, but without
the times of its tokens.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from specdec.loadtest.reliability.kit.asking import ANSWER_LIMIT_S, TIMED_OUT, Answer, error_type_of

if TYPE_CHECKING:
    from specdec.clients.request import GenerationRequest
    from specdec.launch.server_command import ServeSettings

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

MAX_LINE_BYTES = 16384
"""Longest event in bytes; the reader buffers twice as much before it lets the server wait."""

CLOSED = "connection closed"
"""The outcome of an answer whose connection ended before its body."""
NO_ANSWER = (OSError, asyncio.TimeoutError)
"""Errors that end the reading of events early: the connection breaks, or it brings nothing."""
_END_OF_BODY = b"0\r\n"
"""The last chunk of a body that is sent in chunks (RFC 9112, section 7.1)."""


async def post(
    settings: ServeSettings,
    endpoint: str,
    fields: Mapping[str, Any],
    *,
    receive_buffer_bytes: int = 0,
) -> Connection:
    """Send a request to `generate` or `generate_stream` on a connection of its own.

    `receive_buffer_bytes` is the size of the kernel's buffer for the answer; 0 leaves it to the
    kernel. Raises OSError if no server listens.
    """
    body = json.dumps(fields).encode()
    head = (
        f"POST /v2/models/specdec/{endpoint} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    host = settings.reachable_host
    own = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    own.setblocking(False)
    if receive_buffer_bytes:  # The size counts only if it is set before the connection is made.
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    try:
        await asyncio.get_running_loop().sock_connect(own, (host, settings.http_port))
    except OSError:
        own.close()
        raise
    reader, writer = await asyncio.open_connection(sock=own, limit=MAX_LINE_BYTES)
    writer.write(head + body)
    return reader, writer


async def post_stream(
    settings: ServeSettings, request: GenerationRequest, *, receive_buffer_bytes: int = 0
) -> Connection:
    """Send a request to `generate_stream`; see `post`."""
    fields = {
        tensor.name: list(tensor.values) if tensor.is_list else tensor.values[0]
        for tensor in request.tensors(stream=True)
    }
    return await post(
        settings, "generate_stream", fields, receive_buffer_bytes=receive_buffer_bytes
    )


async def events_of(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON object of each server-sent event until the body ends.

    Raises ConnectionError if the connection ends first, and asyncio.TimeoutError if it brings
    nothing for ANSWER_LIMIT_S.
    """
    while (line := await asyncio.wait_for(reader.readline(), ANSWER_LIMIT_S)) != _END_OF_BODY:
        if not line.endswith(b"\n"):
            raise ConnectionError("the connection ended before the body")
        if line.startswith(b"data:"):
            yield json.loads(line.removeprefix(b"data:"))


async def ask_over_http(
    settings: ServeSettings, request: GenerationRequest, started: asyncio.Event | None = None
) -> Answer:
    """Ask over `generate_stream` and read the answer to its end.

    `started` is set at the first event, at the latest at the end. Failures become outcomes.
    """
    answer, started = Answer(start_s=time.monotonic()), started or asyncio.Event()
    try:
        await asyncio.wait_for(_read(settings, request, started, answer), ANSWER_LIMIT_S)
    except asyncio.TimeoutError:
        answer.error_type = TIMED_OUT
    except OSError:  # From Python 3.11 on TimeoutError is an OSError, hence the order.
        if not answer.is_complete:
            answer.error_type = answer.error_type or CLOSED
    answer.last_s = time.monotonic()
    started.set()
    return answer


async def _read(
    settings: ServeSettings, request: GenerationRequest, started: asyncio.Event, answer: Answer
) -> None:
    reader, writer = await post_stream(settings, request)
    try:
        async for event in events_of(reader):
            answer.token_ids += token_ids_of(event)
            answer.is_complete |= bool(event.get("finish_reason"))
            if "error" in event:
                answer.detail = str(event["error"])
                answer.error_type = error_type_of(answer.detail)
            started.set()
    finally:
        writer.close()


def token_ids_of(event: Mapping[str, Any]) -> list[int]:
    """Return the tokens of an event; Triton writes an array of one element as a number."""
    ids = event.get("output_ids", [])
    return ids if isinstance(ids, list) else [ids]
