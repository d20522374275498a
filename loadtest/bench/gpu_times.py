"""What `specdec bench gpu` measures: bandwidth, steps, leaps, and what preparing them costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from loadtest.bench.gpu_shapes import SHAPES, Streams, num_cache_bytes, num_weight_bytes
from specdec.acceptance.sampling import GREEDY, Draw
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.kv_cache import SPLIT_SIZE, KVCache
from specdec.torch_engine.parts import Parts

NUM_CONTEXT_TOKENS = 500
"""Of each sequence: two blocks."""

NUM_ROWS = (1, 2, 5, 9)
BATCH_SIZES = (1, 4, 16)
LEAP_TOKENS = (2, 5, 9)
NUM_BATCHES = 7
"""Of which the median counts."""
LIMITS = EngineLimits(
    max_seq_len=1024,
    max_draft_len=max(NUM_ROWS) - 1,
    max_num_sequences=max(BATCH_SIZES),
    num_cache_tokens=max(BATCH_SIZES) * 4 * SPLIT_SIZE,
)


@dataclass(frozen=True, slots=True)
class StepTime:
    """One pass with its choice of tokens, read by the host; medians of wall time."""

    shape: str
    num_sequences: int
    num_rows: int
    """Of each sequence: 1 + drafts."""
    limit_us: float
    """The bytes of weights and context, each read once, at the measured bandwidth."""
    called_us: float
    """The same steps launched one by one."""
    graph_us: float


@dataclass(frozen=True, slots=True)
class LeapTime:
    """A draft engine's call for some tokens."""

    num_sequences: int
    num_tokens: int
    steps_us: float
    """A replayed pass and a host read for each token."""
    leap_us: float
    """One host read."""


def bandwidth_of(device: torch.device, gigabytes: float) -> float:
    """Bytes per second: the faster of summing a large tensor and of copying it (read + write)."""
    source = torch.ones(int(gigabytes * 1e9 / 4), device=device)
    target = torch.empty_like(source)
    sum_us = _time_us(device, source.sum, 5)
    copy_us = _time_us(device, lambda: target.copy_(source), 5)
    return source.nbytes * 1e6 / min(sum_us, copy_us / 2)


def step_times(
    name: str,
    parts: Parts,
    device: torch.device,
    dtype: torch.dtype,
    bandwidth: float,
    num_calls: int,
) -> list[StepTime]:
    """Of one shape, for every batch size and number of rows."""
    shape = SHAPES[name]
    cache = KVCache(shape, LIMITS.num_cache_tokens, device, dtype)
    measured: dict[tuple[int, int, bool], float] = {}
    for with_graphs in (False, True):
        if with_graphs:
            cache = KVCache(shape, LIMITS.num_cache_tokens, device, dtype)
            parts.prepare(LIMITS, cache)
        for num_sequences in BATCH_SIZES:
            for num_rows in NUM_ROWS:
                streams, numbers = _streams(parts, cache, num_sequences), range(num_sequences)
                rows = streams.rows(numbers, num_rows, num_asked=num_rows)

                def step() -> None:
                    parts.head.most_likely(parts.decoder.run(rows, cache)).tolist()  # noqa: B023

                key = (num_sequences, num_rows, with_graphs)
                measured[key] = _time_us(device, step, num_calls)
                for sequence in rows.sequences:
                    cache.discard(sequence)
    weight_bytes = num_weight_bytes(shape, dtype)
    return [
        StepTime(
            name,
            num_sequences,
            num_rows,
            (
                weight_bytes
                + num_cache_bytes(shape, dtype, num_sequences * (NUM_CONTEXT_TOKENS + num_rows))
            )
            * 1e6
            / bandwidth,
            measured[num_sequences, num_rows, False],
            measured[num_sequences, num_rows, True],
        )
        for num_sequences in BATCH_SIZES
        for num_rows in NUM_ROWS
    ]


def leap_times(
    name: str, parts: Parts, device: torch.device, dtype: torch.dtype, num_calls: int
) -> list[LeapTime]:
    """Of one shape, for every batch size and number of tokens."""
    leaper = parts.leaper
    assert leaper is not None
    cache = KVCache(SHAPES[name], LIMITS.num_cache_tokens, device, dtype)
    limits = replace(LIMITS, max_draft_len=0)
    parts.prepare(limits, cache)
    times = []
    for num_sequences in BATCH_SIZES:
        for num_tokens in LEAP_TOKENS:
            streams, numbers = _streams(parts, cache, num_sequences), range(num_sequences)
            first = streams.rows(numbers, 1, num_asked=1)
            streams.rows(numbers, num_tokens - 1, num_asked=1)  # room for what follows
            text = np.zeros(NUM_CONTEXT_TOKENS + 1, dtype=np.int32)
            draws = [Draw(GREEDY, text, 0) for _ in numbers]

            def step() -> None:
                hidden = parts.decoder.run(first, cache)  # noqa: B023
                parts.head.most_likely(hidden).tolist()

            def leap() -> None:
                said = parts.head.most_likely(parts.decoder.run(first, cache))  # noqa: B023
                leaper.run(said, first.sequences, draws, num_tokens - 1).tolist()  # noqa: B023

            times.append(
                LeapTime(
                    num_sequences,
                    num_tokens,
                    num_tokens * _time_us(device, step, num_calls),
                    _time_us(device, leap, num_calls),
                )
            )
            for sequence in first.sequences:
                cache.discard(sequence)
    return times


def load_cost(
    name: str, parts: Parts, device: torch.device, dtype: torch.dtype, max_seq_len: int
) -> dict[str, float]:
    """What an engine of default limits pays when it loads: seconds, and MiB beside the cache."""
    limits = EngineLimits(max_seq_len=max_seq_len)
    if SHAPES[name].draft_vocab_size:
        limits = replace(limits, max_draft_len=0)
    cache = KVCache(SHAPES[name], limits.num_cache_tokens, device, dtype)
    used = _used_bytes(device)
    start_s = time.perf_counter()
    parts.prepare(limits, cache)
    _wait(device)
    return {
        "seconds": round(time.perf_counter() - start_s, 2),
        "mebibytes": round((_used_bytes(device) - used) / 2**20),
    }


def _streams(parts: Parts, cache: KVCache, num_sequences: int) -> Streams:
    """With their context in the cache."""
    streams = Streams(cache)
    for number in range(num_sequences):
        parts.decoder.run(streams.rows([number], NUM_CONTEXT_TOKENS, num_asked=0), cache)
    return streams


def _time_us(device: torch.device, run: Callable[[], object], count: int) -> float:
    """The median over batches of the mean over `count` calls, by the host's clock."""
    batches = []
    for _ in range(1 + NUM_BATCHES):
        _wait(device)
        start_s = time.perf_counter()
        for _ in range(count):
            run()
        _wait(device)
        batches.append((time.perf_counter() - start_s) / count * 1e6)
    return statistics.median(batches[1:])  # the first one warms up


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _used_bytes(device: torch.device) -> int:
    """Of the whole device: graphs live outside of PyTorch's counters too."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return total - free
