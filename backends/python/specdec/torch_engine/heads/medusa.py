"""Medusa at work: every place ahead has a head of its own on the target's last state.

After Cai et al. 2024: head i guesses the token i + 2 places behind the state.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu

from specdec.torch_engine.heads.reading import Reading, has_ended, offered
from specdec.torch_engine.heads.weights import MedusaWeights
from specdec.torch_engine.kv_cache import KVCache
from specdec.torch_engine.linear import Linear
from specdec.torch_engine.sampler import Sampler


class MedusaHead:
    """Guesses a chain: the likeliest token of each place."""

    taps: tuple[int, ...] = ()

    def __init__(self, weights: MedusaWeights, sampler: Sampler) -> None:
        self._heads = [
            [(Linear(matrix), bias) for matrix, bias in blocks] for blocks in weights.heads
        ]
        self._dtype = weights.head_rows.dtype
        self._sampler = sampler

    def read(self, readings: list[Reading], cache: KVCache) -> list[list[int]]:  # noqa: ARG002
        guesses: list[list[int]] = [[] for _ in readings]
        for number, blocks in enumerate(self._heads):
            wanted = [
                n
                for n, reading in enumerate(readings)
                if reading.num_guesses > number and not has_ended(reading, guesses[n])
            ]
            if not wanted:
                break
            rows = [_last(readings[n]) for n in wanted]
            x = torch.stack(rows * 2 if len(rows) == 1 else rows)
            for matrix, bias in blocks:
                x = x + silu(matrix(x.to(self._dtype)).float() + bias)
            draws = [[readings[n].draw(guesses[n])] for n in wanted]
            for n, (choice,) in zip(wanted, self._sampler.choose(x, draws), strict=True):
                guesses[n].append(choice.token)
        return [offered(reading, said) for reading, said in zip(readings, guesses, strict=True)]


def _last(reading: Reading) -> Tensor:
    assert reading.last is not None
    return reading.last
