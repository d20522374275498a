"""Kill or stop each process under load: what clients get and when, and when answers come again."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specdec.clients import GenerationRequest
from specdec.health.processes import all_processes, model_run_by
from specdec.launch.triton_server import TritonServer
from specdec.loadtest.reliability.kit.asking import WHOLE, Answer, Channels
from specdec.loadtest.reliability.kit.faulty_engine import fault_file, with_planted_faults
from specdec.loadtest.reliability.kit.http_answers import CLOSED, ask_over_http
from specdec.loadtest.reliability.kit.readiness import first_answer, probe
from specdec.loadtest.reliability.kit.table import Row, counted, listed, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NUM_STREAMS, NUM_HTTP = 8, 2
"""Streams during which a fault comes, and how many of them go over HTTP."""
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
    "specdec": {"engine_failed", "UNAVAILABLE", CLOSED},
    "tritonserver": {"engine_failed", "UNAVAILABLE", CLOSED},
}
"""Outcomes that a stream may have after a fault of each process.

If the process dies that writes the answers, the connection breaks. gRPC calls this UNAVAILABLE, and
over HTTP the body has no end (CLOSED).
"""
TOLD_LIMIT_S = 3.0
UNREADY_LIMIT_S = 2.0
BEYOND_START_LIMIT_S = 2.0
"""Seconds that may pass until answers come again, beyond those of the server's first start."""
LONG = GenerationRequest(text_input="Count: one, two, three,", max_tokens=3000, min_tokens=2900)
ENDING = GenerationRequest(text_input="Count: one, two, three,", max_tokens=160, min_tokens=150)
"""A request whose answer must come to its end in spite of a dead draft engine."""


@dataclass(frozen=True, slots=True)
class DeathResult:
    """The effects of one fault; seconds count from the fault."""

    victim: str
    fault: str
    errors: tuple[str, ...]
    """The outcome of each stream: Answer.outcome."""
    slowest_error_s: float
    unready_s: float
    """Time when the probe first said "not ready"; infinity if it never did."""
    is_restarted: bool
    """True if another tritonserver answers than before."""
    reason: str
    """The supervisor's message about the restart."""
    back_s: float
    """Time when the first new answer came; infinity if none did."""
    num_false_ready: int
    """Probes that said "ready" although answers did not come.

    Before the restart, these are probes later than UNREADY_LIMIT_S; none for a dead draft engine,
    since answers come without it. After the restart, these are probes during which an answer
    failed.
    """


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
            first_s, _ = asyncio.run(first_answer(server))
            if first_s == float("inf"):
                raise RuntimeError("no answer before the fault")
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
        f"restarted {num_restarts} of {len(results)}{listed(each.reason for each in results)}; "
        f"answers again after {spread(back)}; first start {spread(starts_s)}; "
        f"reported ready while answers failed: {false_ready}"
    )
    is_back &= not false_ready
    beyond_start_s = max(b - s for b, s in zip(back, starts_s, strict=True))
    if victim == "draft":
        return Row(
            what,
            f"streams: {counted(got)}; {again}",
            "every answer whole, restarted, never reported ready while answers failed",
            set(got) == {WHOLE} and is_back,
        )
    return Row(
        what,
        f"streams: {counted(got)} after {spread(told)}; not ready after {spread(unready)}; {again}",
        f"only {', '.join(sorted(TOLD[victim]))}, told ≤ {TOLD_LIMIT_S:g} s, "
        f"not ready ≤ {UNREADY_LIMIT_S:g} s and never reported ready while "
        f"answers failed, answers again ≤ the "
        f"same server's first start + {BEYOND_START_LIMIT_S:g} s",
        set(got) <= TOLD[victim]
        and max(told) <= TOLD_LIMIT_S
        and max(unready) <= UNREADY_LIMIT_S
        and is_back
        and beyond_start_s <= BEYOND_START_LIMIT_S,
    )


async def inject(server: TritonServer, victim: str, fault: str) -> DeathResult:
    """Start streams, cause the fault, and watch until answers come again.

    Raises RuntimeError if a stream has ended before the fault.
    """
    async with Channels(server.grpc_url, NUM_STREAMS) as channels:
        running = await _started_streams(server, channels, ENDING if victim == "draft" else LONG)
        server_pid, victim_pid = server.pid, process_of(server, victim)
        if any(each.done() for each in running):
            raise RuntimeError("a stream has ended before the fault")
        fault_s = time.monotonic()
        if fault == EXCEPTION:
            fault_file(server.settings.model_repository, victim).touch()
        else:
            os.kill(victim_pid, SIGNALS[fault])
        late_s = fault_s + UNREADY_LIMIT_S
        probing = asyncio.create_task(asyncio.to_thread(probe, server, server_pid, late_s))
        answers = await asyncio.gather(*running)
    # Streams go on without a dead draft engine; the supervisor restarts once nothing is in flight.
    probed = await probing
    back_s, num_in_vain = await first_answer(server)
    return DeathResult(
        victim,
        fault,
        tuple(each.outcome for each in answers),
        max((each.last_s - fault_s for each in answers if not each.is_complete), default=0.0),
        probed.unready_s - fault_s,
        probed.is_restarted,
        _reason_in(server.log_path.read_text("utf-8", "replace")),
        back_s - fault_s,
        num_in_vain + (0 if victim == "draft" else probed.num_late),
    )


async def _started_streams(
    server: TritonServer, channels: Channels, asked: GenerationRequest
) -> list[asyncio.Task[Answer]]:
    """Start NUM_STREAMS streams, the last NUM_HTTP over HTTP, and wait until each has begun."""
    started = [asyncio.Event() for _ in range(NUM_STREAMS)]
    running = [
        asyncio.create_task(
            channels.ask(n, _nth(asked, n), event)
            if n < NUM_STREAMS - NUM_HTTP
            else ask_over_http(server.settings, _nth(asked, n), event)
        )
        for n, event in enumerate(started)
    ]
    await asyncio.gather(*(each.wait() for each in started))
    return running


def _reason_in(log: str) -> str:
    """Return the supervisor's message about the last restart, empty if there was none."""
    lines = [line for line in log.splitlines() if "starting again" in line]
    return lines[-1].removeprefix("specdec serve: ") if lines else ""


def process_of(server: TritonServer, name: str) -> int:
    """Return the process id of a model, or of tritonserver."""
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
