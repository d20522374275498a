"""`specdec bench batch`: what our drafters cost in a step of an engine with a batch loop.

Each row is a request whose prompt and answer are texts of ours. A step verifies the draft tokens
against the answer, as an engine would, and asks for the next ones; only that call is timed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from statistics import median

import numpy as np

from specdec.batch_drafting.batch_drafter import BatchDrafter
from specdec.batch_drafting.building import RequestDrafterBuilder
from specdec.batch_drafting.options import DraftingOptions
from specdec.batch_drafting.requests import RequestStart, RequestStep
from specdec.drafting.copying.suffix import Memory
from specdec.loadtest.kit.options import add_numbers, bench_parser, finish, progress
from specdec.loadtest.kit.prompts import NUM_PER_TASK, as_tokens, held_out_prompts
from specdec.loadtest.kit.results import markdown_table
from specdec.settings.drafters import DrafterSettings
from specdec.steering.controller import Controller
from specdec.steering.load import Load
from specdec.steering.settings import ControlSettings

MAX_DRAFT_LEN = 8
BUDGET_S = 10.0
"""Seconds that a step may ask drafters; long enough to ask every row."""
WARM_UP_STEPS = 20


def main(argv: list[str]) -> int:
    """Measure and report; return 1 if a drafter failed."""
    arguments = _parser().parse_args(argv)
    texts = held_out_prompts(NUM_PER_TASK)
    prompts = [each.token_ids for each in as_tokens(texts, arguments.model_repository)]
    found: dict[int, dict[str, list[float]]] = {}
    faults: list[str] = []
    for num_rows, drafter in itertools.product(arguments.rows, arguments.drafters):
        times_s = _step_times_s(prompts, num_rows, drafter, arguments.steps, faults)
        found.setdefault(num_rows, {})[drafter] = times_s
        progress(f"{num_rows} rows, {drafter}     ")
    print(file=sys.stderr)
    header = [
        "rows",
        *(f"{each}, µs (99th)" for each in arguments.drafters),
        f"{arguments.drafters[0]}, µs a row",
    ]
    rows = [
        [
            str(num_rows),
            *(_cell(times[each]) for each in arguments.drafters),
            f"{1e6 * median(times[arguments.drafters[0]]) / num_rows:.0f}",
        ]
        for num_rows, times in found.items()
    ]
    figures = {
        num_rows: {name: [1e6 * q for q in _quantiles(each)] for name, each in times.items()}
        for num_rows, times in found.items()
    }
    table = markdown_table(header, rows)
    return finish(arguments, argv, {"step_us": figures}, table, faults=faults)


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("batch", __doc__)
    add_numbers(parser, "--rows", (1, 16, 64, 256), "requests in a step")
    parser.add_argument("--drafters", nargs="+", default=["auto", "lookup", "suffix", "none"])
    parser.add_argument("--steps", type=int, default=100, help="timed steps (default: 100)")
    return parser


def _quantiles(times_s: Sequence[float]) -> tuple[float, float]:
    return median(times_s), float(np.quantile(times_s, 0.99))


def _cell(times_s: Sequence[float]) -> str:
    middle, high = _quantiles(times_s)
    return f"{1e6 * middle:.0f} ({1e6 * high:.0f})"


def _step_times_s(
    prompts: Sequence[tuple[int, ...]],
    num_rows: int,
    drafter: str,
    num_steps: int,
    faults: list[str],
) -> list[float]:
    """Return the seconds that each step waited for the drafters of `num_rows` requests.

    Failures of drafters are added to `faults`.
    """
    settings, load, memory = DrafterSettings(draft_models=()), Load(), Memory()
    controller = Controller(ControlSettings(control_share=0.0))
    builder = RequestDrafterBuilder(settings, MAX_DRAFT_LEN, controller, load, memory)
    batch = BatchDrafter(
        builder.build,
        load,
        BUDGET_S,
        remember=memory.learn,
        report_failure=lambda name, error: faults.append(f"drafter {name} failed: {error}"),
    )
    numbers = itertools.count()
    rows = [_Row(batch, prompts, next(numbers), drafter) for _ in range(num_rows)]
    times_s = []
    for number in range(WARM_UP_STEPS + num_steps):
        steps = [row.verify() for row in rows]
        start_s = time.perf_counter()
        found = batch.step(steps)
        if number >= WARM_UP_STEPS:
            times_s.append(time.perf_counter() - start_s)
        for index, (row, proposal) in enumerate(zip(rows, found.proposals, strict=True)):
            row.draft = proposal.tokens
            if not row.answer:
                batch.end(row.name, is_complete=True)
                rows[index] = _Row(batch, prompts, next(numbers), drafter)
    batch.close()
    return times_s


class _Row:
    """A request; its answer is another prompt of ours."""

    def __init__(
        self, batch: BatchDrafter, prompts: Sequence[tuple[int, ...]], number: int, drafter: str
    ) -> None:
        self.name = str(number)
        self.answer = [*prompts[(7 * number + 1) % len(prompts)]]
        self.draft: tuple[int, ...] = ()
        prompt = np.asarray(prompts[number % len(prompts)], dtype=np.int32)
        options = DraftingOptions(len(self.answer), drafter, task="text")
        batch.begin([RequestStart(self.name, prompt, options)])

    def verify(self) -> RequestStep:
        """Return the accepted draft tokens and the answer's next token."""
        num_verified = min(len(self.draft), len(self.answer) - 1)
        pairs = zip(self.draft[:num_verified], self.answer, strict=False)
        num_accepted = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        tokens, self.answer = self.answer[: num_accepted + 1], self.answer[num_accepted + 1 :]
        return RequestStep(self.name, tuple(tokens), num_verified)
