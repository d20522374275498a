"""HTTP connections with limits that uvicorn lacks: their number, time and size."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from specdec.gateway.openai_api.errors import bad_request
from specdec.gateway.settings import GatewayLimits

MAX_HEADER_BYTES = 64 * 1024
"""Most bytes of a request before its body, as in usual web servers."""


class LimitedProtocol(HttpToolsProtocol):
    """A connection with limits.

    - A connection over the limit is closed at once.
    - An idle connection is closed after `keep_alive_s`, one whose headers come too slowly after
      `header_s`, and one with too large headers at once.
    - A connection with a request that comes before the answer to the one before it is aborted. No
      usual client sends requests ahead.
    - A connection whose client leaves an answer unread for `send_s` is aborted. That also holds for
      one that is about to be closed. Over TLS, the time begins once asyncio holds 64 KiB.
    """

    limits: ClassVar[GatewayLimits]
    _reading: asyncio.TimerHandle | None = None
    """Timer until the headers are complete, or until an idle connection is closed."""
    _writing: asyncio.TimerHandle | None = None
    """Timer until the client has read what was sent."""
    _num_header_bytes: int | None = None
    """Bytes of the headers so far; None outside of headers."""
    _num_framing_bytes = 0
    """Bytes since the last part of a body, such as chunk extensions and trailers."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # So `pause_writing` is called as soon as the client leaves anything unread. With 0, asyncio
        # would pause TLS connections with an empty buffer, and never resume them.
        transport.set_write_buffer_limits(high=1)
        if len(self.connections) > self.limits.max_connections:
            transport.abort()
        else:
            self._wait_for_reading(self.limits.keep_alive_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for_reading(None)
        self._stop_writing_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._num_header_bytes is not None:
            self._num_header_bytes += len(data)
        self._num_framing_bytes += len(data)
        super().data_received(data)
        if self._num_framing_bytes > MAX_HEADER_BYTES:
            self.transport.abort()
        elif self._num_header_bytes is None:
            if self._is_idle():
                self._wait_for_reading(self.limits.keep_alive_s)
        elif self._num_header_bytes > MAX_HEADER_BYTES:
            self.transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        # A trailer comes after the body. No route reads it, and uvicorn would keep it.
        if self._num_header_bytes is not None:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._num_framing_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._num_framing_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer data that is not HTTP in the form of all errors."""
        body = json.dumps(bad_request(msg, None, "bad_request").body).encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        if not self._is_idle():
            # uvicorn would parse whatever a client sends ahead, without a limit.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.transport.abort()
            raise ValueError("a request began before the answer to the one before it")
        self._num_header_bytes = 0
        self._wait_for_reading(self.limits.header_s)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._num_header_bytes = None
        self._num_framing_bytes = 0
        self._wait_for_reading(None)
        super().on_headers_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(self.limits.send_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_writing_timer()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]

    def _wait_for_reading(self, seconds: float | None) -> None:
        """Close the connection after `seconds`; None stops waiting."""
        if self._reading is not None:
            self._reading.cancel()
        self._reading = None
        if seconds is not None:
            self._reading = self.loop.call_later(seconds, self.transport.close)

    def _stop_writing_timer(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None


def limited_protocol(limits: GatewayLimits) -> type[LimitedProtocol]:
    """Return uvicorn's protocol class with these limits."""
    return type("ConfiguredProtocol", (LimitedProtocol,), {"limits": limits})
