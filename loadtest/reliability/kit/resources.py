"""Measure the resources that a server's processes hold, and read its counters."""

from __future__ import annotations

import asyncio
import http.client
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
import psutil

from specdec.health.board import SHARED_MEMORY
from specdec.launch.server_command import REGION_PREFIX
from specdec.metrics_page import samples_on

if TYPE_CHECKING:
    from specdec.launch.triton_server import TritonServer

MIB = 2**20
SETTLE_LIMIT_S, SETTLE_PERIOD_S = 120.0, 0.5
NO_PAGE = (OSError, http.client.HTTPException, ValueError)
"""Errors of a metrics page that does not answer or is incomplete, for example during a restart."""
_INFLIGHT = "specdec_inflight_requests"
_REQUESTS = "specdec_requests_total"


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of tritonserver and its model processes at one moment, added up.

    `time_s` is time.monotonic(). Memory is in MiB.
    """

    time_s: float
    rss_mb: float
    num_fds: float
    num_threads: float
    shm_mb: float


def resources_of(server: TritonServer) -> Resources:
    """Measure a running server.

    Raises psutil.Error, OSError or ValueError if a process or a file goes meanwhile.
    """
    parent = psutil.Process(server.pid)
    processes = [parent, *parent.children(recursive=True)]
    # Shared memory is named after the supervisor, as other servers may run on this machine.
    regions = SHARED_MEMORY.rglob(f"{REGION_PREFIX}{parent.ppid()}_*")
    shared = sum(file.stat().st_blocks * 512 for file in regions if file.is_file())
    return Resources(
        time.monotonic(),
        sum(each.memory_info().rss for each in processes) / MIB,
        sum(each.num_fds() for each in processes),
        sum(each.num_threads() for each in processes),
        shared / MIB,
    )


def slopes_per_hour(samples: Sequence[Resources]) -> dict[str, float]:
    """Return the growth of each figure per hour, by least squares over the last two thirds."""
    later = samples[len(samples) // 3 :]
    hours = np.asarray([each.time_s for each in later]) / 3600
    names = [field.name for field in fields(Resources) if field.name != "time_s"]
    return {
        name: float(np.polyfit(hours, [getattr(each, name) for each in later], 1)[0])
        for name in names
    }


def num_inflight(server: TritonServer) -> int:
    """Return how many requests are in flight by the server's metrics."""
    samples = samples_on(_metrics_page(server))
    return sum(int(sample.value) for sample in samples if sample.name == _INFLIGHT)


def requests_by_outcome(server: TritonServer) -> Counter[str]:
    """Return how many requests the server has ended since its start, by outcome."""
    return outcomes_on(_metrics_page(server))


def outcomes_on(page: str) -> Counter[str]:
    """Return the requests that a metrics page counts, by outcome."""
    found: Counter[str] = Counter()
    for sample in samples_on(page):
        if sample.name == _REQUESTS:
            found[sample.labels["outcome"]] += int(sample.value)
    return found


def gateway_total(server: TritonServer, name: str) -> int:
    """Return the sum of one of the gateway's metrics over all labels."""
    samples = samples_on(_page(f"{server.openai_url}/metrics"))
    return sum(int(sample.value) for sample in samples if sample.name == name)


def num_at_gateway(server: TritonServer) -> int:
    """Return how many requests the gateway is reading or answering, beside the one for its page."""
    return gateway_total(server, "specdec_gateway_running_requests") - 1


async def settled(server: TritonServer) -> int:
    """Wait until nothing is in flight, at most for SETTLE_LIMIT_S; return what still is.

    Raises TimeoutError if the metrics page never answered.
    """
    limit_s = time.monotonic() + SETTLE_LIMIT_S
    number: int | None = None
    while number != 0 and time.monotonic() < limit_s:
        with suppress(*NO_PAGE):
            number = await asyncio.to_thread(num_inflight, server)
        await asyncio.sleep(SETTLE_PERIOD_S)
    if number is None:
        raise TimeoutError(f"no metrics page answered for {SETTLE_LIMIT_S:g} s")
    return number


def _metrics_page(server: TritonServer) -> str:
    return _page(server.metrics_url)


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as page:  # noqa: S310 - our own
        return str(page.read().decode())
