"""HTTP connections with limits that uvicorn lacks: their number, and time for the headers."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from specdec.gateway.settings import GatewayLimits


def limited_protocol(limits: GatewayLimits) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol class with these limits.

    A connection over the limit is closed at once; one whose headers come too slowly when their time
    is over. A connection that has sent nothing yet counts as idle.
    """

    class LimitedProtocol(HttpToolsProtocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.max_connections:
                transport.abort()
            else:
                self._wait(limits.keep_alive_s)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            self._wait(limits.header_s)
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._stop_waiting()
            super().on_headers_complete()

        def _wait(self, seconds: float) -> None:
            self._stop_waiting()
            self._timer = self.loop.call_later(seconds, self.transport.close)

        def _stop_waiting(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return LimitedProtocol
