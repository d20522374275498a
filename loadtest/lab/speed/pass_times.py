"""Times of a target pass, and of reading as many bytes as the pass needs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.layers.kv_cache import CachedSequence, TokenIds
from specdec.torch_engine.model import LlamaModel, Segment
from specdec.torch_engine.native import read_speed

NUM_READ_BYTES = 2**28
"""Bytes of one reading: many times the size of the processor's caches."""
BYTES_PER_WEIGHT = {"auto": 2.0, "int8": 1 + 2 / 64}
"""Bytes of a weight in bfloat16, and in int8 with a scale for each 64 weights."""


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


def time_passes(
    model: LlamaModel, num_context: int, rows: Sequence[int], num_repeats: int, num_bytes: float
) -> tuple[list[Step], list[float]]:
    """Return a step for each number of rows, and the GB/s of each reading."""
    generator = np.random.default_rng(num_context)
    ids = generator.integers(5, 40000, num_context + max(rows)).astype(np.int32)
    sequence = model.cache.acquire(ids)
    for start in range(sequence.length, num_context, 256):
        model.run([Segment(sequence, ids[start : min(start + 256, num_context)], 0)])
    limits: list[float] = []
    times: dict[int, list[float]] = {count: [] for count in rows}
    for repeat in range(num_repeats + 1):
        limit_ms = num_bytes / (read_speed(NUM_READ_BYTES) / 1e3)
        passes = {count: _pass_ms(model, sequence, ids, num_context, count) for count in rows}
        if repeat:  # The first repeat warms up.
            limits.append(limit_ms)
            for count in rows:
                times[count].append(passes[count])
    model.cache.discard(sequence)
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
    return steps, [num_bytes / limit_ms / 1e6 for limit_ms in limits]


def _pass_ms(
    model: LlamaModel, sequence: CachedSequence, ids: TokenIds, num_context: int, count: int
) -> float:
    start_s = time.perf_counter()
    hidden = model.run([Segment(sequence, ids[num_context : num_context + count], count)])
    model.head.most_likely(hidden)
    elapsed_ms = (time.perf_counter() - start_s) * 1e3
    model.cache.truncate(sequence, num_context)
    return elapsed_ms


def bytes_read(config: ModelConfig, num_context: int, per_weight: float) -> float:
    """Return the bytes of weights, keys and values that one pass reads."""
    width, kv_width = (count * config.head_dim for count in (config.num_heads, config.num_kv_heads))
    layer = config.hidden_size * (2 * width + 2 * kv_width + 3 * config.intermediate_size)
    head = (config.draft_vocab_size or config.vocab_size) * config.hidden_size
    context = num_context * config.num_layers * 2 * kv_width
    return per_weight * (config.num_layers * layer + head) + 2 * context
