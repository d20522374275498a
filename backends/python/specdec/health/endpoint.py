"""Answer Kubernetes' probes over HTTP for the supervisor: GET /health/live and /health/ready."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DEFAULT_PORT = 8003
"""Port of the endpoint, unless the supervisor's settings name another."""
PORT_VARIABLE = "HEALTH_PORT"
"""Environment variable that sets the port."""
STALE_AFTER_S = 2.0
"""Seconds after which the supervisor's last look at the server is too old to answer "ready"."""
DEAD_AFTER_S = 60.0
"""Seconds without a look after which the supervisor counts as hung and liveness fails. None of its
tasks takes this long."""
CLIENT_TIMEOUT_S = 5.0
"""Seconds after which a client that sends nothing is disconnected."""


@dataclass(frozen=True, slots=True)
class Health:
    """The supervisor's last assessment of its server."""

    is_ready: bool
    reason: str
    """One line that says why the server is ready or not."""
    seen_s: float
    """time.monotonic() at which the supervisor looked at the processes."""


class HealthEndpoint:
    """An HTTP server that answers probes from the last report; it runs on threads of its own."""

    def __init__(self, address: str, port: int) -> None:
        """Listen on this address and port; raise OSError if the port is taken."""
        self._health = Health(False, "starting", time.monotonic())
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            timeout = CLIENT_TIMEOUT_S

            def do_GET(self) -> None:
                status, text = endpoint.answer(self.path)
                body = f"{text}\n".encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing: probes come every few seconds."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Ignore clients that hang up."""

        self._server = Server((address, port), Handler)
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def report(self, health: Health) -> None:
        """Set the health with which probes are answered from now on."""
        self._health = health

    def answer(self, path: str) -> tuple[HTTPStatus, str]:
        """Return the HTTP status and the line of text for a path."""
        health = self._health
        age_s = time.monotonic() - health.seen_s
        if path == "/health/live":
            if age_s > DEAD_AFTER_S:
                return HTTPStatus.SERVICE_UNAVAILABLE, "the supervisor hangs"
            return HTTPStatus.OK, "live"
        if path != "/health/ready":
            return HTTPStatus.NOT_FOUND, "paths: /health/live, /health/ready"
        if age_s > STALE_AFTER_S:
            return HTTPStatus.SERVICE_UNAVAILABLE, "the supervisor hangs"
        status = HTTPStatus.OK if health.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return status, health.reason

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
