"""Chained steps: several tokens for each sequence, with one read from the device at the end.

A draft engine drafts in this way. Each step's token feeds the next step on the device. Graphs of 4,
2 and 1 steps are replayed, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specdec.acceptance.sampling import Draw
from specdec.torch_engine.gpu.buckets import (
    Bucket,
    PassInputs,
    bucket_of,
    pack,
    views,
)
from specdec.torch_engine.gpu.device_noise import DeviceNoise, keys_of
from specdec.torch_engine.gpu.device_sampler import DeviceSampler, temperatures
from specdec.torch_engine.gpu.layers import Layers
from specdec.torch_engine.gpu.step_graph import GraphPool, StepGraph
from specdec.torch_engine.layers.kv_cache import SPLIT_SIZE, CachedSequence, KVCache
from specdec.torch_engine.layers.output_head import OutputHead

CHAINS = (4, 2, 1)
"""Numbers of steps for which graphs are captured."""

MAX_STEPS = 16
"""Most steps that are chained. More would make a new request wait."""

MAX_SEQUENCES = 16
"""Most sequences whose steps are chained. With more, the arithmetic of a step takes longer than a
read from the device, so chaining would save little."""


@dataclass(frozen=True, slots=True)
class _State:
    """Buffers on the device that the steps read and write, for at most S sequences."""

    tokens: Tensor
    """[S] int64: the last token of each sequence, which the next step runs."""
    positions: Tensor
    """[S] int64: the positions of those tokens."""
    table: Tensor
    """[S * N] int64: the cache blocks, laid out for the bucket in use."""
    temperature: Tensor
    """[S] float32: temperatures; 1 for greedy sequences."""
    noise: Tensor
    """[MAX_STEPS * S * vocab] float32, laid out for the S in use; zeros for greedy sequences."""
    step: Tensor
    """[1] int64: number of steps of the running chain that are done."""
    drawn: Tensor
    """[MAX_STEPS, S] int64: the tokens that each step drew."""


class ChainedSteps:
    """The chained steps of one model over one cache."""

    def __init__(
        self,
        layers: Layers,
        head: OutputHead,
        sampler: DeviceSampler,
        noise: DeviceNoise,
        vocab_size: int,
    ) -> None:
        self.sampler = sampler
        self._layers, self._head, self._noise = layers, head, noise
        self._vocab_size = vocab_size
        self._graphs: dict[tuple[Bucket, int], StepGraph] = {}
        self._cache: KVCache | None = None

    def prepare(self, buckets: Sequence[Bucket], cache: KVCache, pool: GraphPool | None) -> None:
        """Capture the chains of each bucket with one row and at most MAX_SEQUENCES sequences.

        Without a `pool` nothing is captured, and each step is called directly.
        """
        buckets = [
            each for each in buckets if each.num_rows == 1 and each.num_sequences <= MAX_SEQUENCES
        ]
        device, size = self._layers.device, max(each.num_sequences for each in buckets)
        num_entries = max(each.num_sequences * each.num_blocks for each in buckets)

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self._state = _State(
            tokens=zeros(size),
            positions=zeros(size),
            table=zeros(num_entries),
            temperature=torch.ones(size, device=device),
            noise=zeros(MAX_STEPS * size * self._vocab_size, dtype=torch.float32),
            step=zeros(1),
            drawn=zeros(MAX_STEPS, size),
        )
        self._cache, self._has_noise = cache, False
        self._graphs.clear()
        for bucket in buckets:
            for num_steps in CHAINS:
                # Each warm-up call advances the counters.
                self._state.step.zero_()
                self._state.positions.zero_()
                chain = self._chain_of(bucket, num_steps, cache.storage)
                self._graphs[bucket, num_steps] = StepGraph(chain, pool)

    def fits(self, cache: KVCache, num_sequences: int, num_tokens: int) -> bool:
        """Return whether the steps of `num_sequences` sequences of `cache` can be chained.

        `num_tokens` is the length of the longest one after the last step.
        """
        bucket = bucket_of(num_sequences, 1, -(-num_tokens // SPLIT_SIZE))
        return cache is self._cache and (bucket, 1) in self._graphs

    def run(
        self,
        first: Tensor,
        sequences: Sequence[CachedSequence],
        draws: Sequence[Draw],
        num_steps: int,
    ) -> Tensor:
        """Draw `num_steps` tokens for each sequence: [n, num_steps] int64 on the device.

        `first` [n] int64 holds the token after each sequence, and `draws` are those that drew it.
        The caller has made room in the sequences for the tokens that run: `first`, and all new ones
        except the last. The next call overwrites the result.
        """
        num, state = len(sequences), self._state
        bucket = bucket_of(num, 1, max(len(each.blocks) for each in sequences))
        size = bucket.num_sequences
        # Padding repeats the last sequence: its copies compute and write the same.
        source = np.minimum(np.arange(size), num - 1)
        padded = [draws[n] for n in source]
        positions = [np.array([draw.position]) for draw in padded]
        blocks = [sequences[n].blocks for n in source]
        packed = torch.from_numpy(
            pack(bucket, [np.asarray([n], np.int32) for n in source], positions, blocks)
        )
        inputs = views(bucket, packed.to(self._layers.device, non_blocking=True))
        state.step.zero_()
        state.tokens[:size] = first.index_select(0, inputs.tokens[:, 0])
        state.positions[:size] = inputs.positions[:, 0]
        state.table[: inputs.table.numel()] = inputs.table.flatten()
        state.temperature[:size].copy_(temperatures(padded), non_blocking=True)
        self._make_noise(padded, num_steps)
        remaining = num_steps
        for length in CHAINS:
            while remaining >= length:
                self._graphs[bucket, length].replay()
                remaining -= length
        return state.drawn[:num_steps, :num].t()

    def _make_noise(self, draws: Sequence[Draw], num_steps: int) -> None:
        """Fill the buffer with the noise of each token that the steps will draw."""
        is_greedy = [draw.params.is_greedy for draw in draws]
        if all(is_greedy):
            if self._has_noise:
                self._state.noise.zero_()
            self._has_noise = False
            return
        self._has_noise = True
        noise = self._noise_of(len(draws))[:num_steps]
        seeds_and_positions = [
            (draw.params.seed, draw.position + 1 + step)
            for step in range(num_steps)
            for draw in draws
        ]
        self._noise.fill(noise.flatten(0, 1), keys_of(seeds_and_positions))
        for n in np.flatnonzero(is_greedy):
            noise[:, n].zero_()

    def _noise_of(self, num_sequences: int) -> Tensor:
        """Return the noise buffer as [MAX_STEPS, S, vocab] for S = `num_sequences`."""
        count = MAX_STEPS * num_sequences * self._vocab_size
        return self._state.noise[:count].view(MAX_STEPS, num_sequences, self._vocab_size)

    def _chain_of(self, bucket: Bucket, num_steps: int, storage: Tensor) -> Callable[[], None]:
        state, size = self._state, bucket.num_sequences
        tokens, positions = state.tokens[:size], state.positions[:size]
        table = state.table[: size * bucket.num_blocks].view(size, bucket.num_blocks)
        inputs = PassInputs(tokens[:, None], positions[:, None], table)
        noise, drawn = self._noise_of(size), state.drawn[:, :size]
        temperature = state.temperature[:size, None]

        def chain() -> None:
            for _ in range(num_steps):
                hidden = self._layers.forward(inputs, storage)
                scores = self._head.logits(hidden) / temperature
                scores = scores + noise.index_select(0, state.step)[0]
                tokens.copy_(scores.argmax(dim=-1))
                drawn.index_copy_(0, state.step, tokens[None])
                positions.add_(1)
                state.step.add_(1)

        return chain
