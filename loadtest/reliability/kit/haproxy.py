"""Run HAProxy in front of replicas, with the configuration that the deployment files have."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files

START_S = 10.0
"""Seconds within which HAProxy must listen."""


@contextmanager
def haproxy(replicas: Sequence[str]) -> Iterator[str]:
    """Yield the URL of a proxy in front of two gateways, given as host:port.

    Raises FileNotFoundError without HAProxy (Debian's package `haproxy`), and RuntimeError if it
    does not listen in time.
    """
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise FileNotFoundError("haproxy is not installed; on Debian: apt-get install haproxy")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"BIND": f"127.0.0.1:{port}", "REPLICA_1": replicas[0], "REPLICA_2": replicas[1]}
    with as_file(files("specdec.builder") / "deploy/proxy/haproxy.cfg") as configuration:
        process = subprocess.Popen(
            [program, "-db", "-f", str(configuration)],
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_until_listening(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    limit_s = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < limit_s:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        time.sleep(0.05)
    raise RuntimeError("HAProxy does not listen")
