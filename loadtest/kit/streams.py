"""Streams that ask one prompt after another for a while, and what arrives in that time."""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

from specdec.clients import AnswerEnd, GenerationRequest
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.arms import AUTO, Arm
from specdec.loadtest.kit.asking import StreamingClient, ask, timed_chunks
from specdec.loadtest.kit.options import add_max_tokens, add_numbers
from specdec.loadtest.kit.prompts import NUM_PER_TASK, TokenPrompt

HANG_UP_S = 1.0
"""Seconds after which a busy server has noticed that the streams of a pass hung up."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A number of streams in one arm for a number of seconds."""

    num_streams: int
    number: int
    arm: str
    seconds: float
    num_tokens: int
    """Tokens that arrived in these seconds."""
    num_answered: int
    """Tokens of the answers that ended in these seconds."""
    num_drafted: int
    """Draft tokens of these answers."""
    num_accepted: int
    median_first_s: float
    """Median time from request to first token; NaN if no first token arrived."""

    @property
    def tokens_per_s(self) -> float:
        """Tokens that arrived per second."""
        return self.num_tokens / self.seconds

    @property
    def num_rounds(self) -> int:
        """Rounds of the ended answers: each gives one token more than it accepts."""
        return self.num_answered - self.num_accepted


@dataclass(slots=True)
class _Arrivals:
    """The arrivals of one stream from `start_s` to `end_s`, both by time.perf_counter()."""

    start_s: float
    end_s: float
    num_tokens: int = 0
    firsts_s: list[float] = field(default_factory=list)
    finals: list[tuple[int, AnswerEnd]] = field(default_factory=list)
    """Tokens and last response of each answer that ended."""

    def read(self, client: StreamingClient, request: GenerationRequest) -> None:
        """Read one answer, and hang up at `end_s`. Raises SpecdecError if the request fails."""
        num_tokens = 0
        with closing(timed_chunks(client, request)) as chunks:
            for since_s, chunk in chunks:
                is_first = not num_tokens
                num_tokens += len(chunk.token_ids)
                now_s = time.perf_counter()
                if now_s >= self.end_s:
                    return
                if now_s < self.start_s:
                    continue
                self.num_tokens += len(chunk.token_ids)
                if is_first:
                    self.firsts_s.append(since_s)
                if chunk.end:
                    self.finals.append((num_tokens, chunk.end))


@dataclass(frozen=True, slots=True)
class Streams:
    """Asks prompts in passes of `seconds`, each after `warm_up_s`."""

    client: StreamingClient
    max_tokens: int
    warm_up_s: float
    seconds: float

    def run(self, num_streams: int, number: int, arm: str, prompts: Iterator[TokenPrompt]) -> Pass:
        """Run one pass. Raises SpecdecError if a request fails.

        All streams hang up at the end. The first answers differ in length, or all streams would
        read their prompts at the same time again and again.
        """
        start_s = time.perf_counter() + self.warm_up_s
        lock = threading.Lock()

        def ask_on(stream: int) -> _Arrivals:
            own = _Arrivals(start_s, start_s + self.seconds)
            max_tokens = max(1, self.max_tokens * (stream + 1) // num_streams)
            while time.perf_counter() < own.end_s:
                with lock:
                    prompt = next(prompts)
                own.read(self.client, _request(prompt, arm, max_tokens))
                max_tokens = self.max_tokens
            return own

        with ThreadPoolExecutor(num_streams) as pool:
            found = list(pool.map(ask_on, range(num_streams)))
        time.sleep(HANG_UP_S)
        finals = [final for own in found for final in own.finals]
        firsts_s = [first_s for own in found for first_s in own.firsts_s]
        return Pass(
            num_streams=num_streams,
            number=number,
            arm=arm,
            seconds=self.seconds,
            num_tokens=sum(own.num_tokens for own in found),
            num_answered=sum(num_tokens for num_tokens, _ in finals),
            num_drafted=sum(final.total_draft_tokens or 0 for _, final in finals),
            num_accepted=sum(final.total_accepted_draft_tokens or 0 for _, final in finals),
            median_first_s=statistics.median(firsts_s) if firsts_s else float("nan"),
        )

    def learn(self, prompts: Iterator[TokenPrompt], num_prompts: int) -> None:
        """Ask some prompts with `auto` without measuring them, so that the server learns."""
        for prompt in itertools.islice(prompts, num_prompts):
            ask(self.client, _request(prompt, AUTO, self.max_tokens))


def _request(prompt: TokenPrompt, arm: str, max_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        input_ids=list(prompt.token_ids),
        max_tokens=max_tokens,
        temperature=0.0,
        return_perf_metrics=True,
        **Arm.parse(arm).fields(),
    )


def add_pass_options(
    parser: argparse.ArgumentParser, *, num_streams: Sequence[int], num_passes: int
) -> None:
    """Add the options of a bench that runs passes of streams, with these defaults."""
    add_numbers(parser, "--streams", num_streams, "requests in flight")
    parser.add_argument(
        "--passes", type=positive, default=num_passes, help="in each arm, by number of streams"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="measured part of a pass")
    parser.add_argument("--warm-up", type=float, default=4.0, help="seconds before that part")
    parser.add_argument("--learning", type=int, default=30, metavar="N", help="requests at first")
    parser.add_argument(
        "--per-task", type=positive, default=NUM_PER_TASK, metavar="N", help="prompts per task"
    )
    add_max_tokens(parser, 48)
