"""EAGLE-3 at work: reads the target's states, then its own, one token at a time.

After Li et al. 2025 and vLLM's llama_eagle3.py: the row of token t reads the target's state there
and token t + 1, and stands at position t. Its keys and values are one more layer of the target's
cache, so they are shared, forked and dropped with the rest.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from specdec.torch_engine.decoder import Rows
from specdec.torch_engine.heads.reading import Reading, has_ended, offered
from specdec.torch_engine.kv_cache import KVCache, TokenIds
from specdec.torch_engine.sampler import Sampler


class Layer(Protocol):
    """The arithmetic of one EAGLE-3 head."""

    def fuse(self, states: Tensor) -> Tensor:
        """[T, 3 * hidden] float32 → [T, hidden]."""

    def run(self, rows: Rows, given: Tensor, cache: KVCache) -> tuple[Tensor, Tensor]:
        """→ [asked, hidden] behind the norm, and before it; writes the new keys and values."""


class Eagle3Head:
    """Guesses a chain."""

    def __init__(self, layer: Layer, sampler: Sampler, taps: tuple[int, ...]) -> None:
        self.taps = taps
        self._layer = layer
        self._sampler = sampler

    def read(self, readings: list[Reading], cache: KVCache) -> list[list[int]]:
        states = torch.cat([reading.states for reading in readings]).flatten(1)
        ends = np.cumsum([len(reading.states) for reading in readings])
        guessing = [n for n, reading in enumerate(readings) if reading.num_guesses]
        hidden, carried = self._run(
            [(reading, reading.start, reading.tokens) for reading in readings],
            self._fused(states),
            [int(ends[n]) - 1 for n in guessing],
            cache,
        )
        guesses: list[list[int]] = [[] for _ in readings]
        step = 0
        while guessing:
            draws = [[readings[n].draw(guesses[n])] for n in guessing]
            for n, (choice,) in zip(guessing, self._sampler.choose(hidden, draws), strict=True):
                guesses[n].append(choice.token)
            going = [
                place
                for place, n in enumerate(guessing)
                if len(guesses[n]) < readings[n].num_guesses
                and not has_ended(readings[n], guesses[n])
            ]
            guessing = [guessing[place] for place in going]
            if guessing:
                hidden, carried = self._run(
                    [
                        (readings[n], readings[n].end + step, np.full(1, guesses[n][-1], np.int32))
                        for n in guessing
                    ],
                    carried[going],
                    list(range(len(guessing))),
                    cache,
                )
            step += 1
        return [offered(reading, said) for reading, said in zip(readings, guesses, strict=True)]

    def _fused(self, states: Tensor) -> Tensor:
        """A product with one row sums in another order (see linear.py)."""
        return (
            self._layer.fuse(states) if len(states) > 1 else self._layer.fuse(states.repeat(2, 1))
        )

    def _run(
        self,
        chunks: list[tuple[Reading, int, TokenIds]],
        given: Tensor,
        asked: list[int],
        cache: KVCache,
    ) -> tuple[Tensor, Tensor]:
        """A chunk: a sequence, the position where it starts, and the tokens behind its rows."""
        positions = [start + np.arange(len(tokens)) for _, start, tokens in chunks]
        tokens = [tokens for _, _, tokens in chunks]
        if sum(map(len, tokens)) == 1:  # The row twice: see linear.py.
            positions, tokens = [positions[0].repeat(2)], [tokens[0].repeat(2)]
            given = given[:1].repeat(2, 1)
        if len(asked) == 1:
            asked = asked * 2
        rows = Rows(
            np.concatenate(tokens).astype(np.int32),
            [reading.sequence for reading, _, _ in chunks],
            positions,
            np.asarray(asked, dtype=np.int64),
        )
        return self._layer.run(rows, given, cache)
