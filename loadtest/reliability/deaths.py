"""Kill or stop each process under load: what clients get and when, and when answers come again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clients import GenerationRequest
from loadtest.reliability.asking import Answer, Channels
from specdec.health.processes import all_processes, model_run_by

if TYPE_CHECKING:
    from specdec.serving.triton_server import TritonServer

NUM_STREAMS = 8
VICTIMS = ("target", "draft", "specdec", "tritonserver")
BLOWS = {"SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
LONG = GenerationRequest(text_input="Count: one, two, three,", max_tokens=3000, min_tokens=2900)
WHOLE = GenerationRequest(text_input="Count: one, two, three,", max_tokens=300, min_tokens=290)
"""Answers that come to their end in spite of a dead draft."""
SHORT = GenerationRequest(text_input="Count: one, two, three,", max_tokens=8)
PROBE_PERIOD_S = 0.05
BACK_LIMIT_S = 90.0


@dataclass(frozen=True, slots=True)
class DeathResult:
    """What one blow did; seconds count from the blow."""

    victim: str
    blow: str
    errors: tuple[str, ...]
    """What each stream got: its error type, or `whole` for an answer that came to its end."""
    slowest_error_s: float
    unready_s: float
    """When readiness first said no; infinity if never."""
    back_s: float
    """When the first new answer came."""


async def strike(server: TritonServer, victim: str, blow: str) -> DeathResult:
    """Start streams, send the signal, and watch until answers come again."""
    async with Channels(server.grpc_url, NUM_STREAMS) as channels:
        started = [asyncio.Event() for _ in range(NUM_STREAMS)]
        asked = WHOLE if victim == "draft" else LONG
        requests = [_nth(asked, n) for n in range(NUM_STREAMS)]
        running = [
            asyncio.create_task(channels.ask(n, each, started[n]))
            for n, each in enumerate(requests)
        ]
        await asyncio.gather(*(each.wait() for each in started))
        pid = process_of(server, victim)
        watching = asyncio.create_task(asyncio.to_thread(_first_unready, server))
        blow_s = time.monotonic()
        os.kill(pid, BLOWS[blow])
        answers = await asyncio.gather(*running)
    unready_s = await watching
    if victim == "draft":  # The server is started again once nothing is in flight.
        unready_s = await asyncio.to_thread(_first_unready, server)
    back_s = await _back(server)
    slowest = max((each.last_s - blow_s for each in answers if not each.is_complete), default=0.0)
    return DeathResult(
        victim,
        blow,
        tuple(_outcome(each) for each in answers),
        slowest,
        unready_s - blow_s,
        back_s - blow_s,
    )


def process_of(server: TritonServer, name: str) -> int:
    """Return the process of a model, or tritonserver's own."""
    if name == "tritonserver":
        return server.pid
    return next(
        each.pid
        for each in all_processes()
        if each.parent == server.pid and model_run_by(each.pid) == name
    )


def _nth(request: GenerationRequest, number: int) -> GenerationRequest:
    drafters = ("draft", "none", "lookup", "auto")
    return GenerationRequest(
        text_input=f"{number}. {request.text_input}",
        max_tokens=request.max_tokens,
        min_tokens=request.min_tokens,
        drafter=drafters[number % len(drafters)],
    )


def _outcome(answer: Answer) -> str:
    return "whole" if answer.is_complete else answer.error_type or "broken"


def _is_ready(server: TritonServer) -> bool:
    try:
        with urllib.request.urlopen(server.health_url, timeout=1.0) as response:  # noqa: S310 - our own
            return bool(response.status == 200)
    except OSError:
        return False


def _first_unready(server: TritonServer) -> float:
    """Return time.monotonic() at the first "not ready", infinity if it stays ready."""
    limit_s = time.monotonic() + 15.0
    while time.monotonic() < limit_s:
        if not _is_ready(server):
            return time.monotonic()
        time.sleep(PROBE_PERIOD_S)
    return float("inf")


async def _back(server: TritonServer) -> float:
    limit_s = time.monotonic() + BACK_LIMIT_S
    while time.monotonic() < limit_s:
        if _is_ready(server):
            async with Channels(server.grpc_url, 1) as channels:
                answer = await asyncio.wait_for(channels.ask(0, SHORT), 10.0)
            if answer.is_complete:
                return answer.last_s
        await asyncio.sleep(PROBE_PERIOD_S)
    return float("inf")
