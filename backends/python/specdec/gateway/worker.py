"""One worker process of the gateway: uvicorn with our application."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time

import uvicorn

from specdec.gateway.app import create_app
from specdec.gateway.settings import GatewaySettings
from specdec.gateway.transport.access import logger as access_logger
from specdec.gateway.transport.connections import limited_protocol
from specdec.gateway.transport.guard import Guard

CANCEL_S = 2
"""Seconds that uvicorn waits after the drain before it cancels what still runs."""
DRAIN_LOOK_S = 0.05
"""Seconds between two looks at the requests that a drain waits for."""


def run_worker(settings: GatewaySettings, listener: socket.socket) -> int:
    """Serve on a listening socket until a signal; return the exit status.

    SIGTERM and SIGINT drain: new requests are refused, running ones may end within the limit.
    Raises ConfigurationError if the keys cannot be read.
    """
    early: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn handles them while it serves, and raises them again at its end.
        signal.signal(number, lambda got, _: early.append(got))
    _log_to_stderr()
    asyncio.run(_serve(settings, listener, early))
    return 0


async def _serve(settings: GatewaySettings, listener: socket.socket, early: list[int]) -> None:
    """Serve until a signal; `early` has those that have come already."""
    server = gateway_server(settings)
    server.should_exit = bool(early)
    await server.serve([listener])


def gateway_server(settings: GatewaySettings) -> uvicorn.Server:
    """Return the server of one worker. Must be called in the event loop that runs it.

    Raises ConfigurationError if the keys cannot be read.
    """
    guard, limits = create_app(settings), settings.limits
    config = uvicorn.Config(
        guard,
        http=limited_protocol(limits),
        loop="none",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=limits.keep_alive_s,
        timeout_graceful_shutdown=CANCEL_S,
        ssl_certfile=settings.certificate_file,
        ssl_keyfile=settings.private_key_file,
    )
    return _DrainingServer(config, guard, limits.drain_s)


class _DrainingServer(uvicorn.Server):
    """A server that lets running requests end before it closes its connections."""

    def __init__(self, config: uvicorn.Config, guard: Guard, drain_s: float) -> None:
        super().__init__(config)
        self._guard = guard
        self._drain_s = drain_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new requests, wait for running ones, and then close all connections."""
        self._guard.is_draining = True
        deadline_s = time.monotonic() + self._drain_s
        # A second signal ends the wait too.
        while (  # noqa: ASYNC110
            self._guard.num_running and time.monotonic() < deadline_s and not self.force_exit
        ):
            await asyncio.sleep(DRAIN_LOOK_S)
        await super().shutdown(sockets)


def _log_to_stderr() -> None:
    """Log errors as text, and each request as a line of JSON."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    access_logger.addHandler(handler)
    access_logger.setLevel(logging.INFO)
    access_logger.propagate = False
