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

from specdec.builder.config_file import set_parameters
from specdec.loadtest.kit.repository import with_drafts
from specdec.loadtest.reliability.kit.asking import Channels
from specdec.loadtest.reliability.kit.hangup_ways import (
    Moment,
    Way,
    cancel_grpc,
    close_channel,
    close_http,
    kill_client,
    plan,
)
from specdec.loadtest.reliability.kit.lasting_load import fill_caches, load, load_row
from specdec.loadtest.reliability.kit.resources import NO_PAGE, requests_by_outcome, settled
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
CLIENT_WAYS = (Way.GRPC_CANCEL, Way.CHANNEL_CLOSE, Way.HTTP_CLOSE)
"""The ways in which they do; another client is killed, again and again."""
CACHE_TOKENS = 8_192
"""Tokens of each engine's KV cache. A cache takes memory as it fills: one of the default size would
still be filling, and growing, while the memory is measured."""
LOAD_S_PER_ROUND = 300.0


@dataclass(slots=True)
class Hangups:
    """The hang-ups as the clients and as the server counted them."""

    by_client: Counter[tuple[Way, Moment]] = field(default_factory=Counter)
    """Hang-ups on requests that had not failed."""
    by_server: Counter[str] = field(default_factory=Counter)
    """Requests by their outcome."""
    seconds: float = 0.0


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
    cancelled, known = hangups.by_server[CANCELLED], list(hangups.by_client.elements())
    ways, moments = [way for way, _ in known], [moment for _, moment in known]
    return Row(
        f"{cancelled} hang-ups in {hangups.seconds / 60:.0f} min",
        f"the server counted {counted(hangups.by_server.elements())}; the clients hung up by "
        f"{counted(each.value for each in ways)}: {counted(each.value for each in moments)}; "
        f"{described(faults)}; {left} in flight",
        f"at least {wanted} seen as {CANCELLED}, other outcomes only ok and overloaded, every way "
        "and moment, 0 deaths, 0 in flight",
        cancelled >= wanted
        and set(hangups.by_server) <= OUTCOMES
        and set(ways) == set(Way)
        and set(moments) == set(Moment)
        and not (faults or left),
    )


async def hang_up(server: TritonServer, wanted: int, limit_s: float, seed: int) -> Hangups:
    """Hang up with NUM_CLIENTS clients until the server has counted `wanted` requests as cancelled.

    Ends after `limit_s` in any case. Leaves the server's own count to the caller.
    """
    draw, hangups, is_enough = random.Random(seed), Hangups(), asyncio.Event()
    moments = list(Moment)
    start_s = time.monotonic()

    async def client(number: int, channels: Channels) -> None:
        while not is_enough.is_set():
            way, moment = draw.choice(CLIENT_WAYS), draw.choice(moments)
            answering = plan(moment, draw)
            match way:
                case Way.GRPC_CANCEL:
                    was_running = await cancel_grpc(channels, number, answering)
                case Way.CHANNEL_CLOSE:
                    was_running = await close_channel(server.grpc_url, answering)
                case _:
                    was_running = await close_http(server.settings, answering)
            hangups.by_client[way, moment] += was_running
            await asyncio.sleep(0.0 if was_running else BACK_OFF_S)

    async def killer() -> None:
        while not is_enough.is_set():
            moment = draw.choice(moments)
            number = await kill_client(server.grpc_url, moment, draw.randrange(10**6))
            hangups.by_client[Way.CLIENT_KILL, moment] += number

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
