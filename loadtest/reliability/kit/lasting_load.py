"""Load that lasts, and what it adds to memory, files and threads of a server."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

from specdec.clients import GenerationRequest
from specdec.loadtest.reliability.kit.asking import WHOLE, Channels
from specdec.loadtest.reliability.kit.hangup_ways import DRAFTERS, TEXT
from specdec.loadtest.reliability.kit.resources import Resources, resources_of, slopes_per_hour
from specdec.loadtest.reliability.kit.table import Row, counted
from specdec.loadtest.reliability.kit.watched import described

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specdec.launch.triton_server import TritonServer

NUM_FILLING, FILLING_WORDS = 12, 125
"""Requests that fill the caches before the load, and the words of each. A word is a number of up
to seven tokens, so that together they need more tokens than a cache has."""
SAMPLE_PERIOD_S = 10.0
MAX_SLOPES = {"rss_mb": 50.0, "num_fds": 20.0, "num_threads": 20.0, "shm_mb": 20.0}
"""Growth per hour that counts as none, measured in half an hour.

- Memory: the server holds about 3 GB, and half an hour allows no finer measurement.
- Files and threads: they vary by a few with the connections. A leak in one of a hundred answers
  would add 50 and more.
- Shared memory: a region grows by 4 MB, and one such step within the twenty minutes that count adds
  18.
"""
UNITS = {"rss_mb": "MB", "num_fds": "files", "num_threads": "threads", "shm_mb": "MB of /dev/shm"}


def load_row(
    outcomes: Sequence[str], samples: Sequence[Resources], left: int, faults: Sequence[str]
) -> Row:
    """Return the row of the load after the hang-ups; `left`: requests still in flight after it."""
    slopes, last = slopes_per_hour(samples), samples[-1]
    minutes = (last.time_s - samples[0].time_s) / 60
    holds = ", ".join(f"{getattr(last, name):.0f} {unit}" for name, unit in UNITS.items())
    adds = ", ".join(f"{slopes[name]:+.1f} {unit}" for name, unit in UNITS.items())
    limits = ", ".join(f"{MAX_SLOPES[name]:g} {unit}" for name, unit in UNITS.items())
    return Row(
        f"{minutes:.0f} minutes of load by 8 clients after them",
        f"answers: {counted(outcomes)}; now {holds}; an hour adds {adds}; {described(faults)}; "
        f"{left} in flight",
        f"all whole, 0 deaths, 0 in flight, an hour adds at most {limits}",
        set(outcomes) == {WHOLE}
        and all(slopes[name] <= limit for name, limit in MAX_SLOPES.items())
        and not (faults or left),
    )


async def fill_caches(server: TritonServer, seed: int) -> list[str]:
    """Ask with long prompts that differ, all at once, so that every block of the caches is used.

    Returns each answer's outcome.
    """
    draw = random.Random(seed)
    async with Channels(server.grpc_url, NUM_FILLING) as channels:
        requests = [
            GenerationRequest(
                text_input=" ".join(str(draw.randrange(10**6)) for _ in range(FILLING_WORDS)),
                max_tokens=8,
                drafter="draft",
            )
            for _ in range(NUM_FILLING)
        ]
        answers = await asyncio.gather(*(channels.ask(n, each) for n, each in enumerate(requests)))
    return [each.outcome for each in answers]


async def load(
    server: TritonServer, seconds: float, seed: int
) -> tuple[list[str], list[Resources]]:
    """Keep eight clients asking for `seconds`.

    Returns each answer's outcome, and samples of the server's resources.
    """
    draw = random.Random(seed)
    end_s = time.monotonic() + seconds
    outcomes: list[str] = []
    samples: list[Resources] = []

    async def client(number: int, channels: Channels) -> None:
        while time.monotonic() < end_s:
            request = GenerationRequest(
                text_input=f"{draw.randrange(200)}. {TEXT}",
                max_tokens=draw.randint(8, 120),
                drafter=draw.choice(DRAFTERS),
                temperature=draw.choice((0.0, 0.8)),
            )
            answer = await channels.ask(number, request)
            outcomes.append(answer.outcome)

    async def watch() -> None:
        while time.monotonic() < end_s:
            with suppress(psutil.Error, OSError, ValueError):  # A process or a file has just gone.
                samples.append(await asyncio.to_thread(resources_of, server))
            await asyncio.sleep(SAMPLE_PERIOD_S)

    async with Channels(server.grpc_url, 8) as channels:
        await asyncio.gather(watch(), *(client(n, channels) for n in range(8)))
    return outcomes, samples
