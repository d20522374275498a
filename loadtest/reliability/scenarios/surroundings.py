"""Serve in poor surroundings: a small /dev/shm, no HOME and an unknown user, IPv6 alone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from specdec.clients import GenerationRequest
from specdec.launch.server_command import ServeSettings, with_free_ports
from specdec.loadtest.reliability.kit.asking import Channels
from specdec.loadtest.reliability.kit.serving import comes_up, serve_command
from specdec.loadtest.reliability.kit.table import Row, one_line
from specdec.loadtest.reliability.scenarios.refusals import requests_of

NUM_STREAMS = 64
UNKNOWN_USER = 54321
SMALL_SHM = "mount -t tmpfs -o size=64m tmpfs /dev/shm && exec"


class Surrounding(Enum):
    """A surrounding of the server, by its name in the table."""

    SMALL_MEMORY = "64 MB of shared memory"
    NO_HOME = "no HOME, unknown user"
    IPV6 = "IPv6"


@dataclass(frozen=True, slots=True)
class SurroundingResult:
    """The result of a server in one of the surroundings."""

    start_s: float
    """Seconds to readiness; infinity if the server did not start.

    `detail` then has its log's end.
    """
    num_whole: int
    """Whole answers among NUM_STREAMS requests sent at once."""
    status: int
    """The exit status."""
    detail: str


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Serve once in each of the surroundings; `rounds` is for scenarios that repeat."""
    del rounds
    for surrounding in Surrounding:
        result = serve_in(surrounding, repository)
        yield Row(
            f"{surrounding.value}: {NUM_STREAMS} answers at once",
            f"ready after {result.start_s:.1f} s, {result.num_whole} whole, exit {result.status}"
            f"{'; ' + one_line(result.detail) if result.detail else ''}",
            "all whole, or a clear error; exit 0",
            result.num_whole == NUM_STREAMS and result.status == 0,
        )


def serve_in(surrounding: Surrounding, repository: Path) -> SurroundingResult:
    """Start a server there, send NUM_STREAMS requests at once, and stop it.

    The small /dev/shm needs root.
    """
    address = "::1" if surrounding is Surrounding.IPV6 else "127.0.0.1"
    settings = with_free_ports(ServeSettings(repository, address, 0, 0, 0, 0))
    command = serve_command(settings)
    environment = dict(os.environ)
    if surrounding is Surrounding.SMALL_MEMORY:
        command = ["unshare", "--mount", "sh", "-c", f'{SMALL_SHM} "$@"', "sh", *command]
    if surrounding is Surrounding.NO_HOME:
        ids = [f"--map-user={UNKNOWN_USER}", f"--map-group={UNKNOWN_USER}"]
        command = ["unshare", "--user", *ids, *command]
        environment.pop("HOME", None)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        log = Path(folder) / "log"
        start_s = time.monotonic()
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT
            )
        try:
            if not comes_up(process, settings):
                process.kill()
                status = process.wait()
                return SurroundingResult(float("inf"), 0, status, log.read_text()[-300:])
            ready_s = time.monotonic() - start_s
            answers = asyncio.run(_ask(f"{settings.url_host}:{settings.grpc_port}"))
            process.send_signal(signal.SIGTERM)
            status = process.wait(timeout=60.0)
        finally:
            process.kill()
            process.wait()
    whole = [each for each in answers if not each]
    others = "; ".join(sorted({each for each in answers if each}))
    return SurroundingResult(ready_s, len(whole), status, others)


async def _ask(url: str) -> Sequence[str]:
    """Return the error of each answer, empty for a whole one."""
    requests = [
        GenerationRequest(text_input=each.text_input, max_tokens=40)
        for each in requests_of(NUM_STREAMS, 0)
    ]
    async with Channels(url, NUM_STREAMS) as channels:
        answers = await channels.ask_all(requests)
    return ["" if each.is_complete else each.detail or "ended without reason" for each in answers]
