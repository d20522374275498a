"""Ask a server whether it is ready while it dies and starts again, and ask it for an answer."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec.clients import GenerationRequest
from specdec.loadtest.reliability.kit.asking import Channels

if TYPE_CHECKING:
    from specdec.launch.triton_server import TritonServer

SHORT = GenerationRequest(text_input="Count: one, two, three,", max_tokens=8)
SHORT_LIMIT_S = 10.0
PROBE_PERIOD_S = 0.05
BACK_LIMIT_S = 90.0


@dataclass(frozen=True, slots=True)
class Probed:
    """The answers of the readiness probe from a fault to the restart."""

    is_restarted: bool
    """True if another tritonserver runs than before."""
    unready_s: float
    """time.monotonic() at the first "not ready"; infinity if none came."""
    num_late: int
    """Number of times that "ready" came too late after the fault."""


def probe(server: TritonServer, pid: int, late_s: float) -> Probed:
    """Ask until another tritonserver than `pid` runs, at most for BACK_LIMIT_S.

    `late_s` is the time.monotonic() after which "ready" comes too late.
    """
    unready_s, num_late = float("inf"), 0
    limit_s = time.monotonic() + BACK_LIMIT_S
    while (asked_s := time.monotonic()) < limit_s:
        # The file with the process id is gone once the supervisor has given up.
        with suppress(OSError, ValueError):
            if server.pid != pid:
                # The restart may come between two questions; the new server is not ready yet.
                if unready_s == float("inf") and not _is_ready(server):
                    unready_s = time.monotonic()
                return Probed(True, unready_s, num_late)
        if not _is_ready(server):
            unready_s = min(unready_s, time.monotonic())
        elif asked_s > late_s:
            num_late += 1
        time.sleep(PROBE_PERIOD_S)
    return Probed(False, unready_s, num_late)


async def first_answer(server: TritonServer) -> tuple[float, int]:
    """Wait until a whole answer comes, at most for BACK_LIMIT_S.

    Returns time.monotonic() at its end, infinity if none comes, and how often the probe said
    "ready" while an answer failed.
    """
    limit_s = time.monotonic() + BACK_LIMIT_S
    num_failed = 0
    while time.monotonic() < limit_s:
        if await asyncio.to_thread(_is_ready, server):
            async with Channels(server.grpc_url, 1) as channels:
                with suppress(asyncio.TimeoutError):
                    answer = await asyncio.wait_for(channels.ask(0, SHORT), SHORT_LIMIT_S)
                    if answer.is_complete:
                        return answer.last_s, num_failed
            num_failed += 1
        await asyncio.sleep(PROBE_PERIOD_S)
    return float("inf"), num_failed


def _is_ready(server: TritonServer) -> bool:
    try:
        with urllib.request.urlopen(server.health_url, timeout=1.0) as response:  # noqa: S310 - our own
            return bool(response.status == 200)
    except OSError:
        return False
