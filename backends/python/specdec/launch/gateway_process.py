"""Run the gateway beside tritonserver: start it, start it again when it ends, and stop it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from specdec.launch.installation import LaunchError

if TYPE_CHECKING:
    from pathlib import Path

    from specdec.launch.server_command import ServeSettings

FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
"""Least seconds from one start of the gateway to the next: at first, and after many deaths."""
MISUSED = (1, 2)
"""Exit statuses of a gateway that cannot be started with its options."""
STOP_S = 5.0
"""Seconds after tritonserver's end within which the gateway ends; none of its requests is left."""
_IS_ORCHESTRATOR = '"tensorrt_llm_model_name"'
"""Parameter in the config.pbtxt of every orchestrator, the models that clients ask."""


class GatewayProcess:
    """The gateway of one supervisor; without `settings.has_openai` it does nothing.

    It goes on while tritonserver is started again, and refuses requests meanwhile.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._started_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._has_restarted = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the gateway. Raises LaunchError if it cannot be started."""
        if self._settings.has_openai:
            self._process = self._start()

    def look(self) -> str:
        """Start the gateway again if it has ended; return a line that says so, else "".

        Raises LaunchError if the first gateway could not be started with its options.
        """
        process, now_s = self._process, time.monotonic()
        if process is None or process.poll() is None or now_s < self._started_s + self._pause_s:
            return ""
        status = process.returncode
        if not self._has_restarted and status in MISUSED:
            raise LaunchError(f"the gateway has ended with status {status}; see its message above")
        self._has_restarted = True
        lived_long = now_s > self._started_s + MAX_PAUSE_S
        self._pause_s = FIRST_PAUSE_S if lived_long else min(2 * self._pause_s, MAX_PAUSE_S)
        try:
            self._process = self._start()
        except (LaunchError, OSError) as error:
            return f"the gateway has ended with status {status}, and no other starts: {error}"
        return f"the gateway has ended with status {status}; starting it again"

    def drain(self) -> None:
        """Ask the gateway to refuse new requests, and to end when the running ones have ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """End the gateway."""
        self.drain()
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self._started_s = time.monotonic()
        try:
            return subprocess.Popen(
                gateway_command(self._settings),
                stdin=subprocess.DEVNULL,
                # Ctrl-C must reach only the supervisor.
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(f"the gateway could not be started: {error}") from error


def gateway_command(settings: ServeSettings) -> list[str]:
    """Return the command line of the gateway in front of this server.

    Raises LaunchError if the repository has no orchestrator.
    """
    models = orchestrators_of(settings.model_repository)
    if not models:
        raise LaunchError(f"no model in {settings.model_repository} can answer OpenAI's requests")
    host = settings.url_host
    options = {
        "--server": f"{host}:{settings.grpc_port}",
        "--address": settings.address,
        "--port": str(settings.openai_port),
        "--health-url": f"http://{host}:{settings.health_port}/health/ready",
        "--metrics-url": f"http://{host}:{settings.metrics_port}/metrics",
        "--drain-s": f"{settings.drain_s:g}",
        "--end-with-parent": str(os.getpid()),
    }
    words = [word for name, value in options.items() for word in (name, value)]
    words += [word for name in models for word in ("--model", name)]
    return [sys.executable, "-m", "specdec.gateway.cli", *words, *settings.gateway_args]


def orchestrators_of(model_repository: Path) -> list[str]:
    """Return the names of the models that clients ask."""
    return [
        path.parent.name
        for path in sorted(model_repository.glob("*/config.pbtxt"))
        if _IS_ORCHESTRATOR in path.read_text("utf-8")
    ]
