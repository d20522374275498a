"""Hang up thousands of times, in every way and at every moment of an answer; then keep up load."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from specdec.builder.config_file import set_parameters
from specdec.clients import GenerationRequest
from specdec.loadtest.kit.repository import with_drafts
from specdec.loadtest.reliability.kit.asking import WHOLE, Channels
from specdec.loadtest.reliability.kit.hangup_ways import (
    DRAFTERS,
    MOMENTS,
    TEXT,
    WAYS,
    cancel_grpc,
    close_channel,
    close_http,
    kill_client,
    plan,
)
from specdec.loadtest.reliability.kit.resources import (
    NO_PAGE,
    Resources,
    requests_by_outcome,
    resources_of,
    settled,
    slopes_per_hour,
)
from specdec.loadtest.reliability.kit.table import Row, counted
from specdec.loadtest.reliability.kit.watched import described, watched_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from specdec.launch.triton_server import TritonServer

HANGUPS_PER_ROUND = 3400
"""Requests that the server must count as CANCELLED."""
LIMIT_PER_ROUND_S = 900.0
"""Seconds after which hanging up ends in any case; 300 are usual on two cores."""
CANCELLED = "cancelled"
OUTCOMES = {CANCELLED, "ok", "overloaded"}
"""Outcomes that the server may count.

Some hang-ups come after the last token. A client's next request may come before the server has
noticed the end of the last one, and is then refused.
"""
CHECK_PERIOD_S = 3.0
"""Seconds between two looks at the server's counters."""
BACK_OFF_S = 0.5
"""Seconds that a client waits after a request that failed."""
NUM_CLIENTS = 24
"""Clients that hang up at the same time."""
CACHE_TOKENS = 8_192
"""Tokens of each engine's KV cache. A cache takes memory as it fills: one of the default size would
still be filling, and growing, while the memory is measured."""
NUM_FILLING, FILLING_WORDS = 12, 125
"""Requests that fill the caches before the load, and the words of each. A word is a number of up
to seven tokens, so that together they need more tokens than a cache has."""
LOAD_S_PER_ROUND = 300.0
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


@dataclass(slots=True)
class Hangups:
    """The hang-ups as the clients and as the server counted them."""

    by_client: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Hang-ups on requests that had not failed, by way and moment."""
    by_server: Counter[str] = field(default_factory=Counter)
    """Requests by their outcome."""
    seconds: float = 0.0

    def by(self, index: int) -> Counter[str]:
        """Return the clients' count by way (0) or by moment (1)."""
        found: Counter[str] = Counter()
        for kinds, number in self.by_client.items():
            found[kinds[index]] += number
        return found


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Hang up HANGUPS_PER_ROUND times, then load for LOAD_S_PER_ROUND, both × `rounds`."""
    wanted = HANGUPS_PER_ROUND * rounds
    with (
        tempfile.TemporaryDirectory() as folder,
        watched_server(_with_small_caches(repository, Path(folder))) as watched,
    ):
        server = watched.server
        hangups = asyncio.run(hang_up(server, wanted, LIMIT_PER_ROUND_S * rounds, seed=rounds))
        left = asyncio.run(settled(server))
        # The server was started for this, so its counts hold nothing else.
        hangups.by_server = requests_by_outcome(server)
        yield hangups_row(hangups, wanted, left, watched.faults())
        filling = asyncio.run(fill_caches(server, rounds))
        outcomes, samples = asyncio.run(load(server, LOAD_S_PER_ROUND * rounds, rounds))
        outcomes = [*filling, *outcomes]
        left = asyncio.run(settled(server))
        yield load_row(outcomes, samples, left, watched.faults())


def _with_small_caches(repository: Path, folder: Path) -> Path:
    copy = with_drafts(repository, folder / "models", [])
    for engine in ("target", "draft"):
        set_parameters(copy / engine, max_tokens_in_paged_kv_cache=str(CACHE_TOKENS))
    return copy


def hangups_row(hangups: Hangups, wanted: int, left: int, faults: Sequence[str]) -> Row:
    """Return the row of the hang-ups; `left`: requests still in flight after them."""
    cancelled, ways, moments = hangups.by_server[CANCELLED], hangups.by(0), hangups.by(1)
    return Row(
        f"{cancelled} hang-ups in {hangups.seconds / 60:.0f} min",
        f"the server counted {counted(hangups.by_server.elements())}; the clients hung up by "
        f"{counted(ways.elements())}: {counted(moments.elements())}; {described(faults)}; "
        f"{left} in flight",
        f"at least {wanted} seen as {CANCELLED}, other outcomes only ok and overloaded, every way "
        "and moment, 0 deaths, 0 in flight",
        cancelled >= wanted
        and set(hangups.by_server) <= OUTCOMES
        and all(ways[each] for each in WAYS)
        and all(moments[each] for each in MOMENTS)
        and not (faults or left),
    )


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


async def hang_up(server: TritonServer, wanted: int, limit_s: float, seed: int) -> Hangups:
    """Hang up with NUM_CLIENTS clients until the server has counted `wanted` requests as cancelled.

    Ends after `limit_s` in any case. Leaves the server's own count to the caller.
    """
    draw, hangups, is_enough = random.Random(seed), Hangups(), asyncio.Event()
    start_s = time.monotonic()

    async def client(number: int, channels: Channels) -> None:
        while not is_enough.is_set():
            way, moment = draw.choice(WAYS[:-1]), draw.choice(MOMENTS)
            answering = plan(moment, draw)
            match way:
                case "gRPC cancel":
                    was_running = await cancel_grpc(channels, number, answering)
                case "channel close":
                    was_running = await close_channel(server.grpc_url, answering)
                case _:
                    was_running = await close_http(server.settings, answering)
            hangups.by_client[way, moment] += was_running
            await asyncio.sleep(0.0 if was_running else BACK_OFF_S)

    async def killer() -> None:
        while not is_enough.is_set():
            moment = draw.choice(MOMENTS)
            number = await kill_client(server.grpc_url, moment, draw.randrange(10**6))
            hangups.by_client[WAYS[-1], moment] += number

    async def watch() -> None:
        num_cancelled = 0
        while num_cancelled < wanted and time.monotonic() < start_s + limit_s:
            await asyncio.sleep(CHECK_PERIOD_S)
            with suppress(*NO_PAGE):
                num_cancelled = (await asyncio.to_thread(requests_by_outcome, server))[CANCELLED]
        is_enough.set()

    async with Channels(server.grpc_url, NUM_CLIENTS) as channels:
        clients = (client(n, channels) for n in range(NUM_CLIENTS))
        await asyncio.gather(watch(), killer(), *clients)
    hangups.seconds = time.monotonic() - start_s
    return hangups


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
