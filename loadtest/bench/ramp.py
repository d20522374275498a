"""`specdec bench ramp`: one server while the load grows: what `auto` chooses, and what it gains.

At each number of streams passes with `auto` and without speculation alternate, in pairs that ask
the same prompts in the same order. In a pass every stream asks one prompt after the other, each
with a salt of its own, so that nothing profits from what another has computed. First answers differ
in length, or all streams would go on reading their prompts together, and it would depend on where
in such a turn a pass ends. Tokens count by when they arrive: from the end of the lead to the end of
the pass, so that all streams are at work all the time. The server learns from some requests
beforehand, one at a time, and is never told of the load.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from clients import Final, GenerationRequest, GrpcClient
from loadtest.bench.arms import OFF, Arm
from loadtest.bench.processor_time import cpu_s
from loadtest.bench.prompting import TokenPrompt, as_tokens, held_out_prompts
from loadtest.bench.ramp_report import AUTO, Pass, figures, table
from loadtest.bench.reporting import RESULTS, command_line, conditions, write_result
from specdec.serving.launcher import TritonServer

ENGINES = ("target", "draft")
HANG_UP_S = 1.0
"""Until the server has heard, with processors busy, that the streams of a pass were left."""


class Streams:
    """Asks prompts for the length of a pass."""

    def __init__(
        self, client: GrpcClient, pid: int, max_tokens: int, lead_s: float, seconds: float
    ) -> None:
        """`pid`: of the server."""
        self._client = client
        self._pid = pid
        self._max_tokens = max_tokens
        self._lead_s = lead_s
        self._seconds = seconds

    def run(self, num_streams: int, number: int, arm: str, prompts: Iterator[TokenPrompt]) -> Pass:
        """Raises SpecdecError where an answer fails."""
        start_s = time.perf_counter() + self._lead_s
        counts = [0] * num_streams
        finals: list[tuple[int, Final]] = []
        lock = threading.Lock()

        def ask_on(stream: int) -> None:
            max_tokens = max(1, self._max_tokens * (stream + 1) // num_streams)
            while time.perf_counter() < start_s + self._seconds:
                with lock:
                    prompt = next(prompts)
                num_tokens = 0
                request = self._request(prompt, arm, max_tokens)
                max_tokens = self._max_tokens
                with closing(self._client.stream(request)) as chunks:
                    for chunk in chunks:
                        now_s = time.perf_counter()
                        num_tokens += len(chunk.token_ids)
                        if now_s >= start_s + self._seconds:
                            return
                        if now_s >= start_s:
                            counts[stream] += len(chunk.token_ids)
                            if chunk.final:
                                finals.append((num_tokens, chunk.final))

        def used_s() -> float:
            time.sleep(max(0.0, start_s - time.perf_counter()))
            before_s = cpu_s(self._pid, ENGINES)
            time.sleep(max(0.0, start_s + self._seconds - time.perf_counter()))
            return cpu_s(self._pid, ENGINES) - before_s

        with ThreadPoolExecutor(num_streams + 1) as pool:
            used = pool.submit(used_s)
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
            cpu_s=used.result(),
        )

    def ask(self, prompt: TokenPrompt, arm: str) -> None:
        """One answer, which nobody counts."""
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


def main(argv: list[str]) -> int:
    """Measure and report; 0 always."""
    arguments = _parser().parse_args(argv)
    checkpoint = arguments.model_repository / "target" / "1" / "checkpoint"
    order = random.Random(arguments.seed)
    found: list[Pass] = []
    numbers = itertools.count()
    with (
        TritonServer(arguments.model_repository) as server,
        GrpcClient(server.grpc_url, timeout_s=120.0) as client,
    ):
        streams = Streams(
            client, server.pid, arguments.max_tokens, arguments.lead, arguments.seconds
        )
        prompts = salted(arguments.per_task, checkpoint, next(numbers), 0)
        for prompt in itertools.islice(prompts, arguments.learning):
            streams.ask(prompt, AUTO)
        for num_streams in arguments.streams:
            for number, seed in zip(range(arguments.passes), numbers, strict=False):
                for place, arm in enumerate(order.sample((OFF, AUTO), 2)):
                    prompts = salted(arguments.per_task, checkpoint, seed, place)
                    found.append(streams.run(num_streams, number, arm, prompts))
                text = f"\r{num_streams} streams, {number + 1}/{arguments.passes}   "
                print(text, end="", file=sys.stderr)
    print(file=sys.stderr)
    loads = figures(found)
    facts = {"conditions": conditions(command_line("ramp", argv)), "loads": loads}
    write_result(arguments.name, arguments.out, facts, table(loads), raw=found)
    return 0


def salted(per_task: int, checkpoint: Path, seed: int, place: int) -> Iterator[TokenPrompt]:
    """All prompts again and again, each time with another salt and in another order.

    The two passes of a pair, 0 and 1, get the same prompts in the same order, with salts of as many
    tokens. A salt changes the answer a little, and so its length: it goes with the place of a pass,
    which is drawn, not with its arm.
    """
    order = random.Random(seed)
    for number in itertools.count():
        prompts, _ = as_tokens(held_out_prompts(per_task), checkpoint, f"{seed:03}{place}{number}")
        yield from order.sample(prompts, len(prompts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench ramp", description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 2, 4, 8, 16, 48])
    parser.add_argument("--passes", type=int, default=6, help="each way, at each number of streams")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a pass that count")
    parser.add_argument("--lead", type=float, default=4.0, help="seconds of a pass before")
    parser.add_argument("--learning", type=int, default=30, metavar="N", help="requests beforehand")
    parser.add_argument("--per-task", type=int, default=11, metavar="N", help="prompts of a task")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1, help="of the order of arms")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="ramp", help="of the result files")
    return parser
