"""Send answers to clients, and notice clients that hang up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response

from specdec.gateway.transport.access import RequestRecord
from specdec.gateway.transport.asgi import Receive, Scope, Send

Value = TypeVar("Value")


async def hung_up(receive: Receive) -> None:
    """Wait until the client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(
    answer: Coroutine[Any, Any, Value], receive: Receive, record: RequestRecord
) -> Value | None:
    """Return the result of `answer`; cancel it if the client hangs up, and return None."""
    task = asyncio.ensure_future(answer)
    watch = asyncio.ensure_future(hung_up(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        record.is_hang_up = True
        return None
    finally:
        for each in (task, watch):
            each.cancel()
        await asyncio.wait({task, watch})


class EventStream(Response):
    """A response of server-sent events, which ends when the client hangs up."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], record: RequestRecord) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events."""
        # HTTP/1.0 has no chunks, so its clients get all events at once.
        answer = self._send_whole(send) if scope["http_version"] == "1.0" else self._send(send)
        try:
            await while_connected(answer, receive, self._record)
        finally:
            await self._events.aclose()

    async def _send_whole(self, send: Send) -> None:
        body = b"".join([each async for each in self._events])
        headers = [*self.raw_headers, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for each in self._events:
            await send({"type": "http.response.body", "body": each, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
