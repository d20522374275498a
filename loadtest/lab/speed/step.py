"""`specdec bench step`: a target pass against the time that reading its bytes takes.

Memory limits a pass with few rows: it reads every weight, and the keys and values of the context,
once. Reading memory that no cache holds alternates with passes of 1 to 16 rows, the choice of the
next tokens included, so that all see the same machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specdec.loadtest.kit.options import add_numbers, bench_parser, finish, progress
from specdec.loadtest.kit.prompts import checkpoint_of
from specdec.loadtest.kit.results import table_of
from specdec.loadtest.pass_bytes import num_cache_bytes, num_weight_bytes
from specdec.token_ids import TokenIds
from specdec.torch_engine.layers.kv_cache import CachedSequence
from specdec.torch_engine.model import LlamaModel, Segment
from specdec.torch_engine.native import read_speed

NUM_CACHE_TOKENS = 16384
NUM_READ_BYTES = 2**28
"""Bytes of one reading: many times the size of the processor's caches."""
NUM_REPEATS = 40
"""Readings, and passes with each number of rows, after one of each that warms up."""


@dataclass(frozen=True, slots=True)
class Step:
    """Medians for one context length and number of rows; times are in milliseconds."""

    num_context: int
    num_rows: int
    pass_ms: float
    limit_ms: float
    """Time to read the weights and the context's keys and values, at the speed measured beside."""
    over_limit: float
    """Pass ÷ limit, the median over the repeats."""
    over_one_row: float
    """Pass ÷ the pass with the first number of rows."""


def main(argv: list[str]) -> int:
    """Measure and report; return 0."""
    parser = bench_parser("step", __doc__)
    add_numbers(parser, "--contexts", (256, 2048, 4096, 8000), "tokens of the context")
    add_numbers(parser, "--rows", (1, 2, 5, 8, 16), "rows of a pass")
    arguments = parser.parse_args(argv)
    checkpoint = checkpoint_of(arguments.model_repository)
    model = LlamaModel(checkpoint, NUM_CACHE_TOKENS, torch.device("cpu"))
    steps: list[Step] = []
    speeds: list[float] = []
    for num_context in arguments.contexts:
        progress(f"context {num_context}\n")
        found, read = time_passes(model, num_context, arguments.rows)
        steps += found
        speeds += read
    gb_per_s = statistics.median(speeds)
    table = f"{_table(steps)}\n\nMemory was read at {gb_per_s:.1f} GB/s (median)."
    return finish(arguments, argv, {"read_gb_per_s": gb_per_s, "steps": steps}, table)


def _table(steps: Sequence[Step]) -> str:
    return table_of(
        {
            "context": lambda step: str(step.num_context),
            "rows": lambda step: str(step.num_rows),
            "pass, ms": lambda step: f"{step.pass_ms:.2f}",
            "limit, ms": lambda step: f"{step.limit_ms:.2f}",
            "pass ÷ limit": lambda step: f"{step.over_limit:.2f}",
            "÷ first": lambda step: f"{step.over_one_row:.2f}",
        },
        steps,
    )


def time_passes(
    model: LlamaModel, num_context: int, rows: Sequence[int]
) -> tuple[list[Step], list[float]]:
    """Return a step for each number of rows, and the GB/s of each reading."""
    generator = np.random.default_rng(num_context)
    ids = generator.integers(5, 40000, num_context + max(rows)).astype(np.int32)
    sequence = model.cache.acquire(ids)
    for start in range(sequence.length, num_context, 256):
        model.run([Segment(sequence, ids[start : min(start + 256, num_context)], 0)])
    num_bytes = num_weight_bytes(model.config, torch.bfloat16)
    num_bytes += num_cache_bytes(model.config, torch.bfloat16, num_context)
    limits, passes = [], []
    for _ in range(NUM_REPEATS + 1):
        limits.append(num_bytes / (read_speed(NUM_READ_BYTES) / 1e3))
        passes.append([_pass_ms(model, sequence, ids, num_context, count) for count in rows])
    model.cache.discard(sequence)
    limit_ms, pass_ms = np.asarray(limits[1:]), np.asarray(passes[1:])  # The first warms up.
    steps = []
    for count, own_ms in zip(rows, pass_ms.T, strict=True):
        values = (own_ms, limit_ms, own_ms / limit_ms, own_ms / pass_ms[:, 0])
        steps.append(Step(num_context, count, *(float(np.median(each)) for each in values)))
    return steps, (num_bytes / limit_ms / 1e6).tolist()


def _pass_ms(
    model: LlamaModel, sequence: CachedSequence, ids: TokenIds, num_context: int, count: int
) -> float:
    start_s = time.perf_counter()
    hidden = model.run([Segment(sequence, ids[num_context : num_context + count], count)])
    model.output_head.most_likely(hidden)
    elapsed_ms = (time.perf_counter() - start_s) * 1e3
    model.cache.truncate(sequence, num_context)
    return elapsed_ms
