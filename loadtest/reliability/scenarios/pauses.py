"""Let a long prompt enter beside running streams: how long they pause, and how long it takes."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specdec.clients import GenerationRequest
from specdec.loadtest.reliability.kit.asking import Answer, Channels
from specdec.loadtest.reliability.kit.table import Row
from specdec.loadtest.reliability.kit.watched import described, watched_server

DRAFTERS = ("none", "auto")
NUM_STREAMS = 4
NUM_WORDS = 4000
"""Words of the prompt, about as many tokens."""
USUAL_S = 8.0
"""Seconds before the prompt enters, and after its first token, in which usual gaps are measured.

Both are measured because the streams' own contexts grow meanwhile.
"""
STREAM_TOKENS = 6000
MAX_RATIO = 3.0
"""Goal, at most: gaps' quantile while the prompt is read ÷ that of the usual gaps."""
PAUSE_QUANTILE = 0.95
WORDS = ("the", "of", "and", "to", "in", "is", "that", "for", "it", "with", "as", "was", "on")


@dataclass(frozen=True, slots=True)
class PauseResult:
    """The gaps of all streams around one long prompt, in seconds."""

    usual_s: float
    """Mean gap between the responses of a stream before the prompt enters and after it is read."""
    usual_high_s: float
    """PAUSE_QUANTILE of the same gaps."""
    pause_s: float
    """Mean gap while the prompt is read."""
    pause_high_s: float
    longest_s: float
    first_token_s: float
    """Time from sending the long prompt to its first token."""


def rows(repository: Path, rounds: int) -> Iterator[Row]:
    """Let a prompt of NUM_WORDS words enter beside streams, `rounds` times with each drafter."""
    with watched_server(repository) as watched:
        for drafter in DRAFTERS:
            url = watched.server.grpc_url
            results = [asyncio.run(pause(url, drafter, seed)) for seed in range(rounds)]
            yield _row(drafter, results, watched.faults())


def _row(drafter: str, results: list[PauseResult], faults: list[str]) -> Row:
    ratios = [each.pause_high_s / each.usual_high_s for each in results]
    longest = max(results, key=lambda each: each.longest_s / each.usual_high_s)
    return Row(
        f"a prompt of {NUM_WORDS} tokens enters beside {NUM_STREAMS} streams, drafter {drafter} "
        f"(×{len(results)})",
        f"{PAUSE_QUANTILE:.0%} of the gaps are within {_median(results, 'usual_high_s')} before "
        f"and after, and within {_median(results, 'pause_high_s')} while it is read (×"
        f"{statistics.median(ratios):.1f}); mean gap {_median(results, 'usual_s')}, meanwhile "
        f"{_median(results, 'pause_s')}; longest {longest.longest_s:.2f} s (×"
        f"{longest.longest_s / longest.usual_high_s:.1f}); its first token comes after "
        f"{_median(results, 'first_token_s')}; {described(faults)}",
        f"{PAUSE_QUANTILE:.0%} of the gaps ≤ {MAX_RATIO:g} × those without the prompt, median of "
        "the rounds; 0 deaths",
        statistics.median(ratios) <= MAX_RATIO and not faults,
    )


def _median(results: list[PauseResult], name: str) -> str:
    return f"{statistics.median(getattr(each, name) for each in results):.3f} s"


async def pause(url: str, drafter: str, seed: int) -> PauseResult:
    """Run streams, let the prompt enter, and end them a while after its first token.

    Raises RuntimeError if the prompt got no whole answer, or a stream has ended before.
    """
    draw = random.Random(f"{drafter} {seed}")
    async with Channels(url, NUM_STREAMS + 1) as channels:
        started = [asyncio.Event() for _ in range(NUM_STREAMS)]
        answers = [Answer() for _ in range(NUM_STREAMS)]
        streams = [
            asyncio.create_task(channels.ask(n, _stream(n, drafter, draw), started[n], answers[n]))
            for n in range(NUM_STREAMS)
        ]
        await asyncio.gather(*(each.wait() for each in started))
        await asyncio.sleep(USUAL_S)
        text = " ".join(draw.choice(WORDS) for _ in range(NUM_WORDS))
        entering = GenerationRequest(text_input=text, max_tokens=1, drafter=drafter)
        late = await channels.ask(NUM_STREAMS, entering)
        await asyncio.sleep(USUAL_S)
        if not late.is_complete or any(each.done() for each in streams):
            # A stream that still runs has the outcome `ended without reason`.
            outcomes = [each.outcome for each in answers]
            raise RuntimeError(f"the long prompt: {late.outcome}; the streams: {outcomes}")
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    start_s, end_s = late.start_s, late.first_s
    usual = [
        gap
        for each in answers
        for since_s in (start_s - USUAL_S, end_s)
        for gap in each.gaps_s(since_s, since_s + USUAL_S)
    ]
    during = [gap for each in answers for gap in each.gaps_s(start_s, end_s)]
    return PauseResult(
        statistics.mean(usual),
        float(np.quantile(usual, PAUSE_QUANTILE)),
        statistics.mean(during),
        float(np.quantile(during, PAUSE_QUANTILE)),
        max(during),
        end_s - start_s,
    )


def _stream(number: int, drafter: str, draw: random.Random) -> GenerationRequest:
    return GenerationRequest(
        text_input=f"{number}. Write a story about {draw.choice(WORDS)} and a dog.",
        max_tokens=STREAM_TOKENS,
        min_tokens=STREAM_TOKENS,
        temperature=0.8,
        seed=draw.randrange(1000),
        drafter=drafter,
    )
