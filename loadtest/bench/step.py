"""`specdec bench step`: a target pass against the time that reading its bytes takes.

A pass of few rows is bound by memory: every weight and the keys and values of the context are read
once. In alternation, so that all see the same machine: how fast all threads together read memory
that no cache holds, and passes of 1 to 16 rows, the choice of the next tokens included.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from loadtest.bench.prompting import CHECKPOINT
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.kv_cache import CachedSequence, TokenIds
from specdec.torch_engine.model import LlamaModel, Segment
from specdec.torch_engine.native import read_speed

NUM_CACHE_TOKENS = 16384
NUM_READ_BYTES = 2**28
"""Many times what the caches hold."""

BYTES_PER_WEIGHT = {"auto": 2.0, "int8": 1 + 2 / 64}
"""In bfloat16; in int8 with a scale for 64."""


@dataclass(frozen=True, slots=True)
class Step:
    """Medians of one context length and number of rows; times in milliseconds."""

    num_context: int
    num_rows: int
    pass_ms: float
    limit_ms: float
    """Reading the weights and the context's keys and values, at the speed of that minute."""
    over_limit: float
    """Median of the ratios of each repetition."""
    over_one_row: float


def main(argv: list[str]) -> int:
    """Run the bench; 0 always."""
    arguments = _parser().parse_args(argv)
    model = LlamaModel(
        arguments.checkpoint,
        NUM_CACHE_TOKENS,
        torch.device("cpu"),
        kernels=arguments.kernels,
        weight_dtype=arguments.weight_dtype,
    )
    per_weight = BYTES_PER_WEIGHT[arguments.weight_dtype]
    steps, speeds = [], []
    for num_context in arguments.contexts:
        num_bytes = _bytes_read(model.config, num_context, per_weight)
        found, read = _measure(model, num_context, arguments.rows, arguments.repeats, num_bytes)
        steps += found
        speeds += read
        print(f"context {num_context}: done", file=sys.stderr)
    facts = {
        "conditions": conditions(command_line("step", argv)),
        "read_gb_per_s": statistics.median(speeds),
        "steps": steps,
    }
    table = _table(steps, statistics.median(speeds))
    write_result(arguments.name, arguments.out, facts, table, raw={"read_gb_per_s": speeds})
    return 0


def _measure(
    model: LlamaModel, num_context: int, rows: list[int], num_repeats: int, num_bytes: float
) -> tuple[list[Step], list[float]]:
    generator = np.random.default_rng(num_context)
    ids = generator.integers(5, 40000, num_context + max(rows)).astype(np.int32)
    sequence = model.cache.acquire(ids)
    for start in range(sequence.length, num_context, 256):
        model.run([Segment(sequence, ids[start : min(start + 256, num_context)], 0)])
    speeds: list[float] = []
    times: dict[int, list[float]] = {count: [] for count in rows}
    for repeat in range(num_repeats + 1):
        bytes_per_ms = read_speed(NUM_READ_BYTES) / 1e3
        passes = {count: _pass_ms(model, sequence, ids, num_context, count) for count in rows}
        if repeat:  # the first one warms up
            speeds.append(bytes_per_ms)
            for count in rows:
                times[count].append(passes[count])
    model.cache.discard(sequence)
    limits = [num_bytes / speed for speed in speeds]
    steps = [
        Step(
            num_context,
            count,
            statistics.median(times[count]),
            statistics.median(limits),
            statistics.median(ms / limit for ms, limit in zip(times[count], limits, strict=True)),
            statistics.median(a / b for a, b in zip(times[count], times[rows[0]], strict=True)),
        )
        for count in rows
    ]
    return steps, [speed / 1e6 for speed in speeds]


def _pass_ms(
    model: LlamaModel, sequence: CachedSequence, ids: TokenIds, num_context: int, count: int
) -> float:
    start = time.perf_counter()
    hidden = model.run([Segment(sequence, ids[num_context : num_context + count], count)])
    model.head.most_likely(hidden)
    elapsed_ms = (time.perf_counter() - start) * 1e3
    model.cache.truncate(sequence, num_context)
    return elapsed_ms


def _bytes_read(config: ModelConfig, num_context: int, per_weight: float) -> float:
    width, kv_width = (count * config.head_dim for count in (config.num_heads, config.num_kv_heads))
    layer = config.hidden_size * (2 * width + 2 * kv_width + 3 * config.intermediate_size)
    head = (config.draft_vocab_size or config.vocab_size) * config.hidden_size
    context = num_context * config.num_layers * 2 * kv_width
    return per_weight * (config.num_layers * layer + head) + 2 * context


def _table(steps: list[Step], gb_per_s: float) -> str:
    rows = [
        [
            str(step.num_context),
            str(step.num_rows),
            f"{step.pass_ms:.2f}",
            f"{step.limit_ms:.2f}",
            f"{step.over_limit:.2f}",
            f"{step.over_one_row:.2f}",
        ]
        for step in steps
    ]
    header = ["context", "rows", "pass, ms", "limit, ms", "pass ÷ limit", "÷ first"]
    return f"{markdown_table(header, rows)}\n\nMemory was read at {gb_per_s:.1f} GB/s (median)."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench step", description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT)
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 2048, 4096, 8000])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 5, 8, 16])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--kernels", default="auto", help="auto, native or torch")
    parser.add_argument("--weight-dtype", choices=BYTES_PER_WEIGHT, default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="step")
    return parser
