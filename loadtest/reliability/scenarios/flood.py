"""Let one tenant flood the server beside another tenant that asks now and then."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specdec.builder.config_file import set_parameters
from specdec.clients import GenerationRequest
from specdec.loadtest.kit.repository import with_drafts
from specdec.loadtest.reliability.kit.asking import Answer, Channels
from specdec.loadtest.reliability.kit.table import Row, spread
from specdec.loadtest.reliability.kit.watched import described, watched_server

NUM_FLOODING = 96
"""Clients of the flooding tenant, each asking again at once: more than the server's 64 slots."""
FLOOD_S = 40.0
BACK_OFF_S = 0.5
"""Seconds after which a refused client of the flooding tenant asks again."""
PERIOD_S = 2.0
"""Seconds between two requests of the other tenant."""
SHARES = (1.0, 0.75)
"""Values of `max_tenant_share`: no bound, and the default."""


@dataclass(frozen=True, slots=True)
class FloodResult:
    """The answers of the tenant that asks now and then."""

    num_asked: int
    num_whole: int
    num_refused: int
    first_token_s: tuple[float, ...]
    num_flood_whole: int
    """Whole answers of the flooding tenant."""


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Flood for FLOOD_S in each of `rounds`, with and without the bound."""
    for share in SHARES:
        with tempfile.TemporaryDirectory() as folder:
            copy = with_drafts(repository, Path(folder), [])
            set_parameters(copy / "specdec", max_tenant_share=str(share))
            with watched_server(copy) as watched:
                url = watched.server.grpc_url
                results = [asyncio.run(flood(url)) for _ in range(rounds)]
                faults = watched.faults()
        first_s = [each for result in results for each in result.first_token_s]
        asked, whole, refused, flooding = (
            sum(getattr(each, name) for each in results)
            for name in ("num_asked", "num_whole", "num_refused", "num_flood_whole")
        )
        is_bounded = share < 1
        yield Row(
            f"one tenant's {NUM_FLOODING} clients ask all the time, another's every "
            f"{PERIOD_S:g} s; max_tenant_share {share:g} (×{rounds})",
            f"the other: {whole} of {asked} whole, {refused} refused"
            f"{', first token after ' + spread(first_s) if first_s else ''}; "
            f"the first: {flooding} whole; {described(faults)}",
            "0 deaths; " + ("the other gets every answer" if is_bounded else "no bound to judge"),
            not faults and (not is_bounded or whole == asked > 0),
        )


async def flood(url: str) -> FloodResult:
    """Run both tenants for FLOOD_S."""
    end_s = time.monotonic() + FLOOD_S
    num_flood_whole = 0

    async def ask_all_the_time(number: int, channels: Channels) -> None:
        nonlocal num_flood_whole
        while time.monotonic() < end_s:
            answer = await channels.ask(number, _request(number, "flood"))
            num_flood_whole += answer.is_complete
            await asyncio.sleep(0.0 if answer.is_complete else BACK_OFF_S)

    answers: list[Answer] = []
    async with Channels(url, NUM_FLOODING + 1) as channels:
        flooding = [asyncio.create_task(ask_all_the_time(n, channels)) for n in range(NUM_FLOODING)]
        await asyncio.sleep(PERIOD_S)
        while time.monotonic() < end_s:
            answers.append(await channels.ask(NUM_FLOODING, _request(len(answers), "now and then")))
            await asyncio.sleep(PERIOD_S)
        await asyncio.gather(*flooding)
    return FloodResult(
        len(answers),
        sum(each.is_complete for each in answers),
        sum(each.error_type == "overloaded" for each in answers),
        tuple(each.first_s - each.start_s for each in answers if each.first_s),
        num_flood_whole,
    )


def _request(number: int, tenant: str) -> GenerationRequest:
    text = f"{number}. Count: one, two, three,"
    return GenerationRequest(text_input=text, max_tokens=60, min_tokens=60, tenant=tenant)
