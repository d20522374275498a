"""Start `specdec serve` from the command line, as its users do, and wait until it is ready."""

from __future__ import annotations

import subprocess
import sys
import time

from specdec.launch.server_command import ServeSettings
from specdec.launch.triton_server import is_ready

START_LIMIT_S = 120.0
"""Seconds that a start may take if kernels have to be compiled first."""


def serve_command(settings: ServeSettings, *options: str) -> list[str]:
    """Return the command that serves with these settings' repository, address and ports."""
    command = [sys.executable, "-m", "specdec", "serve", "--address", settings.address]
    command += ["--model-repository", str(settings.model_repository)]
    for kind, port in settings.ports.items():
        command += [f"--{kind}-port", str(port)]
    return [*command, *options]


def comes_up(process: subprocess.Popen[bytes], settings: ServeSettings) -> bool:
    """Wait until the server is ready; return False if it ends first or takes START_LIMIT_S."""
    limit_s = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < limit_s:
        if is_ready(settings):
            return True
        time.sleep(0.1)
    return False
