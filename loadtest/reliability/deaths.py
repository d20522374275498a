"""Kill or stop each process under load: what clients get and when, and when answers come again."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clients import GenerationRequest
from loadtest.reliability.asking import WHOLE, Channels
from loadtest.reliability.faulty_engine import fault_file, with_planted_faults
from loadtest.reliability.table import Row, counted, spread
from specdec.health.processes import all_processes, model_run_by
from specdec.serving.triton_server import TritonServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NUM_STREAMS = 8
SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
EXCEPTION = "an exception in the engine's loop"
FAULTS = {
    "target": (*SIGNALS, EXCEPTION),
    "draft": (*SIGNALS, EXCEPTION),
    "specdec": tuple(SIGNALS),
    "tritonserver": tuple(SIGNALS),
}
"""The faults of each process."""
TOLD = {
    "target": {"engine_failed"},
    "specdec": {"engine_failed", "UNAVAILABLE"},
    "tritonserver": {"engine_failed", "UNAVAILABLE"},
}
"""Outcomes that a stream may have. Where the process died that writes the answers, the connection
breaks, which gRPC calls UNAVAILABLE."""
TOLD_LIMIT_S = 3.0
UNREADY_LIMIT_S = 2.0
BEYOND_START_LIMIT_S = 2.0
"""Seconds that answers may take to come again beyond those of the server's first start."""
LONG = GenerationRequest(text_input="Count: one, two, three,", max_tokens=3000, min_tokens=2900)
ENDING = GenerationRequest(text_input="Count: one, two, three,", max_tokens=160, min_tokens=150)
"""Answers that come to their end in spite of a dead draft."""
SHORT = GenerationRequest(text_input="Count: one, two, three,", max_tokens=8)
PROBE_PERIOD_S = 0.05
BACK_LIMIT_S = 90.0


@dataclass(frozen=True, slots=True)
class DeathResult:
    """The effects of one fault; seconds count from the fault."""

    victim: str
    fault: str
    errors: tuple[str, ...]
    """The outcome of each stream: Answer.outcome."""
    slowest_error_s: float
    unready_s: float
    """When readiness first said no; infinity if never."""
    is_restarted: bool
    """Another tritonserver answers than before."""
    back_s: float
    """When the first new answer came; infinity if none did."""
    num_false_ready: int
    """How often the probe said ready after that and an answer failed."""


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Cause each fault `rounds` times, each time in a server that has just been started."""
    for victim, faults in FAULTS.items():
        for fault in faults:
            trials = [_trial(repository, victim, fault) for _ in range(rounds)]
            yield _row(victim, fault, [result for result, _ in trials], [s for _, s in trials])


def _trial(repository: Path, victim: str, fault: str) -> tuple[DeathResult, float]:
    """Return the effects of one fault, and the seconds to the server's first answer before it."""
    with tempfile.TemporaryDirectory() as folder:
        planted = with_planted_faults(repository, Path(folder))
        command_s = time.monotonic()
        with TritonServer(planted) as server:
            first_s, _ = asyncio.run(_first_answer(server))
            return asyncio.run(inject(server, victim, fault)), first_s - command_s


def _row(victim: str, fault: str, results: Sequence[DeathResult], starts_s: Sequence[float]) -> Row:
    told = [each.slowest_error_s for each in results]
    unready = [each.unready_s for each in results]
    back = [each.back_s for each in results]
    got = [error for each in results for error in each.errors]
    what = f"{fault} of {victim} under {NUM_STREAMS} streams (×{len(results)})"
    num_restarts = sum(each.is_restarted for each in results)
    is_back = num_restarts == len(results) and max(back) < float("inf")
    false_ready = sum(each.num_false_ready for each in results)
    again = (
        f"restarted {num_restarts} of {len(results)}; answers again after {spread(back)}; first "
        f"start {spread(starts_s)}; said ready in vain: {false_ready}"
    )
    is_back &= not false_ready
    beyond_start_s = max(b - s for b, s in zip(back, starts_s, strict=True))
    if victim == "draft":
        return Row(
            what,
            f"streams: {counted(got)}; {again}",
            "every answer whole, restarted",
            set(got) == {WHOLE} and is_back,
        )
    return Row(
        what,
        f"streams: {counted(got)} after {spread(told)}; not ready after {spread(unready)}; {again}",
        f"only {', '.join(sorted(TOLD[victim]))}, told ≤ {TOLD_LIMIT_S:g} s, "
        f"not ready ≤ {UNREADY_LIMIT_S:g} s, answers again ≤ the same server's first start + "
        f"{BEYOND_START_LIMIT_S:g} s",
        set(got) <= TOLD[victim]
        and max(told) <= TOLD_LIMIT_S
        and max(unready) <= UNREADY_LIMIT_S
        and is_back
        and beyond_start_s <= BEYOND_START_LIMIT_S,
    )


async def inject(server: TritonServer, victim: str, fault: str) -> DeathResult:
    """Start streams, cause the fault, and watch until answers come again."""
    async with Channels(server.grpc_url, NUM_STREAMS) as channels:
        started = [asyncio.Event() for _ in range(NUM_STREAMS)]
        asked = ENDING if victim == "draft" else LONG
        requests = [_nth(asked, n) for n in range(NUM_STREAMS)]
        running = [
            asyncio.create_task(channels.ask(n, each, started[n]))
            for n, each in enumerate(requests)
        ]
        await asyncio.gather(*(each.wait() for each in started))
        server_pid, victim_pid = server.pid, process_of(server, victim)
        watching = asyncio.create_task(asyncio.to_thread(_first_unready, server))
        fault_s = time.monotonic()
        if fault == EXCEPTION:
            fault_file(server.settings.model_repository, victim).touch()
        else:
            os.kill(victim_pid, SIGNALS[fault])
        answers = await asyncio.gather(*running)
    # A dead draft is missed by no stream: the server is started again once nothing is in flight.
    is_restarted = await asyncio.to_thread(_is_another, server, server_pid)
    unready_s = await watching
    back_s, num_false_ready = await _first_answer(server)
    return DeathResult(
        victim,
        fault,
        tuple(each.outcome for each in answers),
        max((each.last_s - fault_s for each in answers if not each.is_complete), default=0.0),
        unready_s - fault_s,
        is_restarted,
        back_s - fault_s,
        num_false_ready,
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


def _is_another(server: TritonServer, pid: int) -> bool:
    """Wait until another tritonserver than `pid` runs; False if none does in time."""
    limit_s = time.monotonic() + BACK_LIMIT_S
    while time.monotonic() < limit_s:
        with suppress(OSError, ValueError):  # The file is being written.
            if server.pid != pid:
                return True
        time.sleep(PROBE_PERIOD_S)
    return False


async def _first_answer(server: TritonServer) -> tuple[float, int]:
    """Wait until a whole answer comes.

    Returns time.monotonic() at its end, infinity if none comes, and how often the probe said ready
    while an answer failed.
    """
    limit_s = time.monotonic() + BACK_LIMIT_S
    num_failed = 0
    while time.monotonic() < limit_s:
        if _is_ready(server):
            async with Channels(server.grpc_url, 1) as channels:
                with suppress(asyncio.TimeoutError):
                    answer = await asyncio.wait_for(channels.ask(0, SHORT), 10.0)
                    if answer.is_complete:
                        return answer.last_s, num_failed
            num_failed += 1
        await asyncio.sleep(PROBE_PERIOD_S)
    return float("inf"), num_failed
