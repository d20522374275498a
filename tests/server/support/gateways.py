"""A gateway in front of a live server, as `specdec gateway` starts it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.server.support.live import ask_http
from tests.waiting import wait_for


class Gateway:
    """A running gateway."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self.process = process

    def ask(self, path: str = "/v1/chat/completions", method: str = "POST", **more: Any) -> Any:
        """Send one HTTP request and close its connection."""
        return ask_http(method, self.url + path, **more)

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all labels."""
        page = self.ask("/metrics", "GET").data.decode()
        lines = [line for line in page.splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


@contextmanager
def gateway_of(server: Any, log: Path, *options: str) -> Iterator[Gateway]:
    """Yield a gateway in front of a TritonServer; `options` are those of `specdec gateway`."""
    command = [sys.executable, "-m", "specdec", "gateway", "--server", server.grpc_url]
    command += ["--port", "0", "--health-url", server.health_url, *options]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            line = process.stdout.readline()
            gateway = Gateway(line.split()[2].removesuffix("/v1"), process)
            wait_for(lambda: gateway.ask("/health/ready", "GET", retries=10).status == 200)
            yield gateway
        finally:
            process.terminate()
            process.wait(60)
