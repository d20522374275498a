"""Requests to Triton's HTTP endpoints over connections that can be read slowly or cut off."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.serving.server_command import ServeSettings

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

MAX_LINE_BYTES = 16384
"""Longest event. The reader holds twice as much before it lets the server wait."""

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

    `receive_buffer_bytes`: the kernel's buffer for the answer; 0 leaves its size to the kernel.
    Raises OSError if nobody listens.
    """
    body = json.dumps(fields).encode()
    head = (
        f"POST /v2/models/specdec/{endpoint} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    host = settings.reachable_host
    own = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    own.setblocking(False)
    if receive_buffer_bytes:  # Counts only if it is set before the connection is made.
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    try:
        await asyncio.get_running_loop().sock_connect(own, (host, settings.http_port))
    except OSError:
        own.close()
        raise
    reader, writer = await asyncio.open_connection(sock=own, limit=MAX_LINE_BYTES)
    writer.write(head + body)
    return reader, writer


async def events_of(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON object of each server-sent event until the body or the connection ends."""
    while (line := await reader.readline()) and line != _END_OF_BODY:
        if line.startswith(b"data:") and line.endswith(b"\n"):  # Else the connection broke in it.
            yield json.loads(line.removeprefix(b"data:"))


def token_ids_of(event: Mapping[str, Any]) -> list[int]:
    """Return the tokens of an event; Triton writes an array of one element as a number."""
    ids = event.get("output_ids", [])
    return ids if isinstance(ids, list) else [ids]
