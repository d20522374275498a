"""Times of our decoder's passes: single steps, verifications, prompts, and chained steps.

A draft model's steps of one call are chained on the device.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from specdec.acceptance.sampling import GREEDY, Draw
from specdec.loadtest.gpu.decoders.shapes import Streams
from specdec.loadtest.gpu.decoders.timing import DeviceSpeed, median_us, wait
from specdec.loadtest.pass_bytes import num_cache_bytes, num_layer_parameters, num_weight_bytes
from specdec.torch_engine.config import EngineLimits, ModelConfig
from specdec.torch_engine.gpu.buckets import MAX_GRAPH_ROWS, Bucket, bucket_of, group
from specdec.torch_engine.gpu.graph_decoder import GraphDecoder
from specdec.torch_engine.layers.kv_cache import SPLIT_SIZE, KVCache
from specdec.torch_engine.parts import Parts

NUM_CONTEXT_TOKENS = 500
"""Context of each sequence in tokens.

With the rows of a verification it fills two blocks of the cache.
"""
_NUM_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class StepTime:
    """Time of one pass with its choice of tokens, read by the host; medians of wall time in µs."""

    num_sequences: int
    num_draft_tokens: int
    """Draft tokens of each sequence, k; a pass has 1 + k rows of each."""
    limit_us: float
    """Time to read the bytes of weights and context once at the read bandwidth."""
    launched_us: float
    """Time of the pass, launched operation by operation."""
    graph_us: float
    """Time of the pass, replayed as graphs."""
    capture_s: float
    """Seconds to capture the graphs."""


@dataclass(frozen=True, slots=True)
class PromptTime:
    """Time to read one prompt, in passes as large as the engine makes them."""

    num_tokens: int
    tokens_per_s: float
    share_of_peak: float
    """Floating-point operations per second of the layers ÷ those of a large matrix product."""


@dataclass(frozen=True, slots=True)
class ChainedTime:
    """Time of a draft engine's call for several tokens, in µs."""

    num_sequences: int
    num_tokens: int
    steps_us: float
    """Time with a replayed pass and a host read for each token."""
    chained_us: float
    """Time with all passes chained on the device and one host read."""


def step_times(
    config: ModelConfig,
    parts: Parts,
    speed: DeviceSpeed,
    cache: KVCache,
    batches: tuple[int, ...],
    draft_lengths: tuple[int, ...],
    num_calls: int,
) -> Iterator[StepTime]:
    """Measure every batch size and draft length; `cache` is empty and has room for them all.

    Keys and values of the context are zeros: the time does not depend on them.
    """
    decoder, device, dtype = _graph_decoder(parts), cache.storage.device, cache.storage.dtype
    for num_sequences in batches:
        streams, numbers = Streams(cache), range(num_sequences)
        streams.rows(numbers, NUM_CONTEXT_TOKENS, num_asked=0)
        for num_draft_tokens in draft_lengths:
            num_rows = 1 + num_draft_tokens
            rows = streams.rows(numbers, num_rows, num_asked=num_rows)

            def step() -> None:
                parts.output_head.most_likely(decoder.run(rows, cache)).tolist()  # noqa: B023

            decoder.prepare([], cache, parts.pool)
            launched_us = median_us(device, step, num_calls)
            start_s = time.perf_counter()
            decoder.prepare(_buckets(num_sequences, num_rows), cache, parts.pool)
            wait(device)
            capture_s = time.perf_counter() - start_s
            num_tokens = num_sequences * (NUM_CONTEXT_TOKENS + num_rows)
            num_bytes = num_weight_bytes(config, dtype) + num_cache_bytes(config, dtype, num_tokens)
            yield StepTime(
                num_sequences=num_sequences,
                num_draft_tokens=num_draft_tokens,
                limit_us=num_bytes * 1e6 / speed.read_bytes_per_s,
                launched_us=launched_us,
                graph_us=median_us(device, step, num_calls),
                capture_s=capture_s,
            )
            streams.shorten(NUM_CONTEXT_TOKENS)
        for sequence in rows.sequences:
            cache.discard(sequence)


def prompt_time(
    config: ModelConfig, parts: Parts, speed: DeviceSpeed, cache: KVCache, num_tokens: int
) -> PromptTime:
    """Measure how long a prompt of `num_tokens` takes, in passes of an engine with default limits.

    A rest that does not fill a pass is left out.
    """
    streams, device = Streams(cache), cache.storage.device
    size = min(num_tokens, EngineLimits().max_num_tokens)
    passes = [streams.rows([0], size, num_asked=1) for _ in range(num_tokens // size)]

    def read() -> None:
        for rows in passes:
            hidden = parts.decoder.run(rows, cache)
        parts.output_head.most_likely(hidden).tolist()

    read_us = median_us(device, read, 2)
    cache.discard(passes[0].sequences[0])
    tokens_per_s = len(passes) * size * 1e6 / read_us
    flops = 2 * num_layer_parameters(config)
    return PromptTime(len(passes) * size, tokens_per_s, tokens_per_s * flops / speed.flops_per_s)


def chained_times(
    parts: Parts,
    cache: KVCache,
    batches: tuple[int, ...],
    lengths: tuple[int, ...],
    num_calls: int,
) -> Iterator[ChainedTime]:
    """Measure a draft model's calls for each number of sequences and of tokens.

    `parts` must be able to chain passes on the device.
    """
    decoder, steps, device = _graph_decoder(parts), parts.chained_steps, cache.storage.device
    assert steps is not None
    buckets = [bucket_of(each, 1, _NUM_BLOCKS) for each in sorted(batches, reverse=True)]
    decoder.prepare(buckets, cache, parts.pool)
    steps.prepare(buckets, cache, parts.pool)
    for num_sequences in batches:
        streams, numbers = Streams(cache), range(num_sequences)
        streams.rows(numbers, NUM_CONTEXT_TOKENS, num_asked=0)
        text = np.zeros(NUM_CONTEXT_TOKENS + 1, dtype=np.int32)
        draws = [Draw(GREEDY, text, 0) for _ in numbers]
        for num_tokens in lengths:
            first = streams.rows(numbers, 1, num_asked=1)
            # Makes room in the cache for the tokens that follow.
            streams.rows(numbers, num_tokens - 1, num_asked=1)

            def step() -> None:
                parts.output_head.most_likely(decoder.run(first, cache)).tolist()  # noqa: B023

            def call() -> None:
                tokens = parts.output_head.most_likely(decoder.run(first, cache))  # noqa: B023
                steps.run(tokens, first.sequences, draws, num_tokens - 1).tolist()  # noqa: B023

            yield ChainedTime(
                num_sequences=num_sequences,
                num_tokens=num_tokens,
                steps_us=num_tokens * median_us(device, step, num_calls),
                chained_us=median_us(device, call, num_calls),
            )
            streams.shorten(NUM_CONTEXT_TOKENS)
        for sequence in first.sequences:
            cache.discard(sequence)


def cache_for(
    config: ModelConfig, num_sequences: int, device: torch.device, dtype: torch.dtype
) -> KVCache:
    """Return a cache with room for `num_sequences` sequences of two blocks."""
    return KVCache(config, num_sequences * _NUM_BLOCKS * SPLIT_SIZE, device, dtype)


def _buckets(num_sequences: int, num_rows: int) -> list[Bucket]:
    """Return the buckets of the graphs that a pass replays, the largest first.

    There are several if the pass is too wide for one. Parts too wide for any graph have none.
    """
    groups = group([num_rows] * num_sequences)
    buckets = {bucket_of(len(members), num_rows, _NUM_BLOCKS) for members in groups}
    captured = [each for each in buckets if each.num_sequences * each.num_rows <= MAX_GRAPH_ROWS]
    return sorted(captured, key=lambda each: each.num_inputs, reverse=True)


def _graph_decoder(parts: Parts) -> GraphDecoder:
    assert isinstance(parts.decoder, GraphDecoder)
    return parts.decoder
