"""Start, watch and stop the worker processes of a gateway."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import ssl
import sys
import tempfile
import time
from multiprocessing.context import SpawnProcess

from prometheus_client import multiprocess

from specdec.errors import ConfigurationError
from specdec.gateway.metrics import DIRECTORY_VARIABLE
from specdec.gateway.settings import GatewaySettings
from specdec.gateway.transport.keys import ApiKeys
from specdec.gateway.worker import CANCEL_S, run_worker
from specdec.parent_process import end_with_parent

LOOK_S = 0.2
"""Seconds between two looks at the workers."""
PAUSE_S = 1.0
"""Seconds before a worker that has died is started again."""
BACKLOG = 2048
"""Connections that the kernel accepts before a worker takes them, as uvicorn's default."""


def serve_gateway(settings: GatewaySettings) -> int:
    """Serve until a signal and return the exit status. Raises ConfigurationError."""
    _check_files(settings)
    listener = _listen(settings)
    host, port = listener.getsockname()[:2]
    scheme = "https" if settings.has_tls else "http"
    shown = f"[{host}]" if ":" in host else host
    print(f"specdec gateway: {scheme}://{shown}:{port}/v1 for {settings.server}", flush=True)
    if settings.num_workers == 1:
        return run_worker(settings, listener)
    with tempfile.TemporaryDirectory(prefix="specdec-gateway-") as shared:
        # Workers write their metrics there; prometheus_client reads the variable at its import.
        os.environ[DIRECTORY_VARIABLE] = shared
        return _Workers(settings, listener).run()


def _check_files(settings: GatewaySettings) -> None:
    """Raise ConfigurationError if keys or certificate cannot be read; each worker reads them."""
    ApiKeys.load(settings.api_key_file)
    if settings.certificate_file is None:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.certificate_file, settings.private_key_file)
    except OSError as error:  # ssl.SSLError is one.
        raise ConfigurationError(f"the TLS certificate or its key is wrong: {error}") from None


def _listen(settings: GatewaySettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.address, settings.port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen on {settings.address}:{settings.port}: {error}"
        ) from None
    listener.listen(BACKLOG)
    return listener


class _Workers:
    """Several worker processes that accept connections from one socket."""

    def __init__(self, settings: GatewaySettings, listener: socket.socket) -> None:
        self._settings = settings
        self._listener = listener
        self._is_stopping = False
        self._processes: list[SpawnProcess] = []

    def run(self) -> int:
        """Run the workers until a signal; return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._processes = [self._start() for _ in range(self._settings.num_workers)]
        while not self._is_stopping:
            time.sleep(LOOK_S)
            self._replace_dead()
        return self._stop()

    def _on_signal(self, *_: object) -> None:
        self._is_stopping = True

    def _start(self) -> SpawnProcess:
        process = multiprocessing.get_context("spawn").Process(
            target=_run, args=(self._settings, self._listener, os.getpid())
        )
        process.start()
        return process

    def _replace_dead(self) -> None:
        for index, process in enumerate(self._processes):
            if process.is_alive() or self._is_stopping:
                continue
            print(
                f"specdec gateway: a worker has ended with {process.exitcode}; starting another",
                file=sys.stderr,
            )
            multiprocess.mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
            time.sleep(PAUSE_S)
            if not self._is_stopping:
                self._processes[index] = self._start()

    def _stop(self) -> int:
        for process in self._processes:
            process.terminate()
        deadline_s = time.monotonic() + self._settings.limits.drain_s + 2 * CANCEL_S
        for process in self._processes:
            process.join(max(0.0, deadline_s - time.monotonic()))
            if process.is_alive():
                process.kill()
        return 0


def _run(settings: GatewaySettings, listener: socket.socket, parent_pid: int) -> None:
    end_with_parent(parent_pid)
    sys.exit(run_worker(settings, listener))
