"""Streams that ask one prompt after another for a while, and what arrives in that time."""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from specdec.clients import AnswerEnd, GenerationRequest, GrpcClient
from specdec.loadtest.kit.arms import Arm
from specdec.loadtest.kit.prompts import TokenPrompt, as_tokens, held_out_prompts

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


class Streams:
    """Asks prompts for the length of a pass."""

    def __init__(
        self, client: GrpcClient, max_tokens: int, warm_up_s: float, seconds: float
    ) -> None:
        """Prepare passes of `seconds`, each after `warm_up_s`."""
        self._client = client
        self._max_tokens = max_tokens
        self._warm_up_s = warm_up_s
        self._seconds = seconds

    def run(self, num_streams: int, number: int, arm: str, prompts: Iterator[TokenPrompt]) -> Pass:
        """Run one pass. Raises SpecdecError if a request fails.

        All streams hang up at the end. The first answers differ in length, or all streams would
        read their prompts at the same time again and again.
        """
        start_s = time.perf_counter() + self._warm_up_s
        end_s = start_s + self._seconds
        counts = [0] * num_streams
        firsts_s: list[float] = []
        finals: list[tuple[int, AnswerEnd]] = []
        lock = threading.Lock()

        def ask_on(stream: int) -> None:
            max_tokens = max(1, self._max_tokens * (stream + 1) // num_streams)
            while time.perf_counter() < end_s:
                with lock:
                    prompt = next(prompts)
                request = self._request(prompt, arm, max_tokens)
                num_tokens, max_tokens = 0, self._max_tokens
                sent_s = time.perf_counter()
                with closing(self._client.stream(request)) as chunks:
                    for chunk in chunks:
                        now_s = time.perf_counter()
                        is_first = not num_tokens
                        num_tokens += len(chunk.token_ids)
                        if now_s >= end_s:
                            return
                        if now_s < start_s:
                            continue
                        counts[stream] += len(chunk.token_ids)
                        if is_first:
                            firsts_s.append(now_s - sent_s)
                        if chunk.end:
                            finals.append((num_tokens, chunk.end))

        with ThreadPoolExecutor(num_streams) as pool:
            list(pool.map(ask_on, range(num_streams)))
        time.sleep(HANG_UP_S)
        return Pass(
            num_streams=num_streams,
            number=number,
            arm=arm,
            seconds=self._seconds,
            num_tokens=sum(counts),
            num_answered=sum(num_tokens for num_tokens, _ in finals),
            num_drafted=sum(final.total_draft_tokens or 0 for _, final in finals),
            num_accepted=sum(final.total_accepted_draft_tokens or 0 for _, final in finals),
            median_first_s=statistics.median(firsts_s) if firsts_s else float("nan"),
        )

    def ask(self, prompt: TokenPrompt, arm: str) -> None:
        """Ask one prompt without measuring it, so that the server learns."""
        for _ in self._client.stream(self._request(prompt, arm, self._max_tokens)):
            pass

    @staticmethod
    def _request(prompt: TokenPrompt, arm: str, max_tokens: int) -> GenerationRequest:
        return GenerationRequest(
            input_ids=list(prompt.token_ids),
            max_tokens=max_tokens,
            temperature=0.0,
            return_perf_metrics=True,
            **Arm.parse(arm).fields(),
        )


def salted(per_task: int, checkpoint: Path, seed: int, turn: int) -> Iterator[TokenPrompt]:
    """Yield all held-out prompts again and again, each time salted anew and in another order.

    The two passes of a pair, with `turn` 0 and 1, get the same prompts in the same order, with
    salts of equally many tokens. A salt changes the answer a little, and with it its length. It
    therefore depends on the pass's turn, which is drawn, and not on its arm.
    """
    order = random.Random(seed)
    for number in itertools.count():
        prompts, _ = as_tokens(held_out_prompts(per_task), checkpoint, f"{seed:03}{turn}{number}")
        yield from order.sample(prompts, len(prompts))
