"""`specdec bench batches`: should requests that speculate and plain ones be batched apart?

Half of the prompts are of tasks where guesses pay, and are speculated on; half of tasks where they
do not, and run plain. So many streams answer all from one queue. Mixed: in an order drawn by
chance, so that most passes have rows of both. Apart: one half behind the other, so that hardly any
has. Passes over all prompts alternate between the two, each with a salt of its own, so that none
profits from what another has computed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from loadtest.bench.arms import OFF
from loadtest.bench.asking import Asker
from loadtest.bench.prompting import TokenPrompt, as_tokens, held_out_prompts
from loadtest.bench.ratios import Ratio, resampled
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.bench.speed_tables import rate_of
from specdec.serving.launcher import TritonServer

MIXED, APART = "mixed", "apart"
PAYING = ("summarization", "translation", "customer_support")
NOT_PAYING = ("creative_writing", "question_answering", "sql")


@dataclass(frozen=True, slots=True)
class Pass:
    """All prompts once, one way."""

    order: str
    number: int
    num_tokens: int
    seconds: float
    """From the first request to the last answer."""
    speculated: float
    """Tokens per second of a request that speculates, and of a plain one."""
    plain: float

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tokens per second of all streams, or of one kind of request, in either order."""

    part: str
    mixed: float
    apart: float
    apart_over_mixed: Ratio


def main(argv: list[str]) -> int:
    """Measure and report; 0 always."""
    arguments = _parser().parse_args(argv)
    arguments.case, arguments.times = "0", False
    checkpoint = arguments.model_repository / "target" / "1" / "checkpoint"
    order = random.Random(arguments.seed)
    found: list[Pass] = []
    _, end_id = as_tokens([], checkpoint)
    with (
        TritonServer(arguments.model_repository) as server,
        closing(Asker(server, arguments, end_id)) as asker,
    ):
        asker.ask(
            as_tokens(held_out_prompts(1), checkpoint)[0][0], OFF
        )  # One connection for all streams.
        for number in range(-1, arguments.passes):
            for way in order.sample((MIXED, APART), 2):
                salted = as_tokens(
                    held_out_prompts(arguments.per_task), checkpoint, f"{way}{number}"
                )[0]
                halves = [
                    [(prompt, arm) for prompt in salted if prompt.column in tasks]
                    for tasks, arm in ((PAYING, arguments.speculated), (NOT_PAYING, OFF))
                ]
                order.shuffle(halves)
                queue = [each for half in halves for each in half]
                if way == MIXED:
                    order.shuffle(queue)
                one = _pass(asker, queue, way, number, arguments.streams)
                found += [one] if number >= 0 else []  # The first of each warms up.
            print(f"\r{number + 1}/{arguments.passes}", end="", file=sys.stderr)
    print(file=sys.stderr)
    compared = figures(found)
    facts = {"conditions": conditions(command_line("batches", argv)), "compared": compared}
    write_result(arguments.name, arguments.out, facts, _table(compared), raw=found)
    return 0


def _pass(
    asker: Asker, queue: Sequence[tuple[TokenPrompt, str]], way: str, number: int, num_streams: int
) -> Pass:
    start_s = time.perf_counter()
    with ThreadPoolExecutor(num_streams) as streams:
        answers = list(streams.map(lambda each: asker.ask(*each), queue))
    return Pass(
        order=way,
        number=number,
        num_tokens=sum(each.num_tokens for each in answers),
        seconds=time.perf_counter() - start_s,
        speculated=rate_of(each for each in answers if each.arm != OFF),
        plain=rate_of(each for each in answers if each.arm == OFF),
    )


def figures(found: Sequence[Pass]) -> list[Comparison]:
    """Compare the means over the passes; medians would hide the ends of the queue."""
    parts: dict[str, Callable[[Pass], float]] = {
        "all streams together": lambda each: each.tokens_per_s,
        "a request that speculates": lambda each: each.speculated,
        "a plain request": lambda each: each.plain,
    }
    known = {(each.order, str(each.number)): each for each in found}
    numbers = sorted({number for _, number in known})

    def mean(way: str, part: Callable[[Pass], float], drawn: Sequence[str]) -> float:
        return sum(part(known[way, number]) for number in drawn) / len(drawn)

    def gain(part: Callable[[Pass], float]) -> Ratio:
        return resampled(numbers, lambda drawn: mean(APART, part, drawn) / mean(MIXED, part, drawn))

    return [
        Comparison(name, mean(MIXED, part, numbers), mean(APART, part, numbers), gain(part))
        for name, part in parts.items()
    ]


def _table(compared: Sequence[Comparison]) -> str:
    rows = [
        [each.part, f"{each.mixed:.1f}", f"{each.apart:.1f}", str(each.apart_over_mixed)]
        for each in compared
    ]
    header = ["tokens/s of", MIXED, APART, "apart ÷ mixed, 95 % interval"]
    return markdown_table(header, rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench batches", description=__doc__)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--passes", type=int, default=10, help="over all prompts, each way")
    parser.add_argument("--per-task", type=int, default=8, metavar="N", help="prompts of a task")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument(
        "--speculated",
        default="eagle3:2",
        metavar="DRAFTER:GUESSES",
        help="how requests where it pays are speculated on (default: eagle3:2)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the order of prompts")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="batches", help="of the result files")
    return parser
