"""Measure what a server's processes hold: memory, file descriptors, threads, shared memory."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import psutil

from specdec.health.board import SHARED_MEMORY

if TYPE_CHECKING:
    from specdec.serving.triton_server import TritonServer

MIB = 2**20
SETTLE_LIMIT_S, SETTLE_PERIOD_S = 120.0, 0.5
_INFLIGHT = "specdec_inflight_requests"


@dataclass(frozen=True, slots=True)
class Resources:
    """Sums over tritonserver and its model processes at one moment."""

    time_s: float
    rss_mb: float
    num_fds: float
    num_threads: float
    shm_mb: float


def resources_of(server: TritonServer) -> Resources:
    """Measure a running server."""
    parent = psutil.Process(server.pid)
    processes = [parent, *parent.children(recursive=True)]
    shared = sum(
        file.stat().st_blocks * 512 for file in SHARED_MEMORY.rglob("specdec_*") if file.is_file()
    )
    return Resources(
        time.monotonic(),
        sum(each.memory_info().rss for each in processes) / MIB,
        sum(each.num_fds() for each in processes),
        sum(each.num_threads() for each in processes),
        shared / MIB,
    )


def slopes_per_hour(samples: Sequence[Resources]) -> dict[str, float]:
    """Return how fast each figure grows, by least squares over the later two thirds."""
    later = samples[len(samples) // 3 :]
    hours = np.asarray([each.time_s for each in later]) / 3600
    names = [field.name for field in fields(Resources) if field.name != "time_s"]
    return {
        name: float(np.polyfit(hours, [getattr(each, name) for each in later], 1)[0])
        for name in names
    }


def num_inflight(server: TritonServer) -> int:
    """Return how many requests the server's metrics count as being served."""
    with urllib.request.urlopen(server.metrics_url, timeout=10) as page:  # noqa: S310 - our own
        lines = page.read().decode().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(_INFLIGHT))


async def settled(server: TritonServer) -> int:
    """Wait until nothing is in flight; return how many requests still are at the limit."""
    limit_s = time.monotonic() + SETTLE_LIMIT_S
    number = 1
    while number and time.monotonic() < limit_s:
        number = await asyncio.to_thread(num_inflight, server)
        await asyncio.sleep(SETTLE_PERIOD_S)
    return number
