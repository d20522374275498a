"""The noise of `acceptance/noise.py`, computed on the device with PyTorch's integer operations.

The generator is Philox 4x64-10 keyed by (seed, position) (Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3"). Its counters run as in numpy. Random words and uniform numbers come
from integers and exact float32 operations, so they are the same on every device. The two logarithms
are the device's own, so they may differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specdec.acceptance.sampling import Draw
from specdec.torch_engine.gpu.step_graph import GraphPool, StepGraph

NUM_ROWS = 16
"""Rows of noise that one replay of the graph computes."""

_NUM_ROUNDS = 10
_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_SCALE = 2.0**-32


class DeviceNoise:
    """Gumbel noise for pairs of (seed, position), from one graph of NUM_ROWS rows."""

    def __init__(self, vocab_size: int, device: torch.device, pool: GraphPool | None) -> None:
        self._vocab_size, self._device = vocab_size, device
        self._multipliers = _signed(_MULTIPLIERS).to(device)[:, None, None]
        self._key_steps = _signed(_KEY_STEPS).to(device)[:, None, None]
        self._keys = torch.zeros((2, NUM_ROWS), dtype=torch.int64, device=device)
        self._rows = torch.zeros((NUM_ROWS, vocab_size), device=device)
        self._graph = StepGraph(self._fill, pool)

    def rows(self, draws: Sequence[Draw]) -> Tensor:
        """Return the noise of each draw's seed and position: [n, vocab] float32."""
        keys = keys_of([(draw.params.seed, draw.position) for draw in draws])
        out = torch.empty((len(draws), self._vocab_size), device=self._device)
        self.fill(out, keys)
        return out

    def fill(self, out: Tensor, keys: Tensor) -> None:
        """Write noise into `out` [n, vocab] float32.

        `keys` [2, n] int64, on the host, holds the seed and the position of each row.
        """
        on_device = keys.to(self._device, non_blocking=True)
        for start in range(0, len(out), NUM_ROWS):
            part = out[start : start + NUM_ROWS]
            self._keys[:, : len(part)] = on_device[:, start : start + NUM_ROWS]
            self._graph.replay()
            part.copy_(self._rows[: len(part)])

    def _fill(self) -> None:
        words = self._words(self._keys)[:, : self._vocab_size]
        # These are the operations of acceptance/noise.py, in the same order.
        uniform = (words.float() + 0.5) * _SCALE
        self._rows.copy_(uniform.neg_().log1p_().neg_().log_().neg_())

    def _words(self, keys: Tensor) -> Tensor:
        """Return random words: [n, at least vocab] int64 below 2³², entry i for token i.

        `keys` [2, n] int64 holds seeds and positions.
        """
        num_counters = -(-self._vocab_size // 8)
        counters = torch.arange(1, num_counters + 1, device=self._device)
        even = torch.zeros((2, keys.shape[1], num_counters), dtype=torch.int64, device=self._device)
        # `even` holds words 0 and 2 of each state, `odd` words 1 and 3.
        even[0] = counters
        odd = torch.zeros_like(even)
        key = keys[:, :, None]
        for _ in range(_NUM_ROUNDS):
            high, low = _multiply(even, self._multipliers)
            even, odd = high.flip(0) ^ odd ^ key, low.flip(0)
            key = key + self._key_steps
        state = torch.stack((even[0], odd[0], even[1], odd[1]), dim=-1)
        halves = torch.stack((state & _LOW, (state >> 32) & _LOW), dim=-1)
        return halves.flatten(1)


def keys_of(seeds_and_positions: Sequence[tuple[int, int]]) -> Tensor:
    """Return pairs of (seed, position) as keys: [2, n] int64 on the host.

    Each int64 holds the bits of an unsigned number.
    """
    keys = np.array(seeds_and_positions, dtype=np.uint64).reshape(-1, 2).T
    return torch.from_numpy(np.ascontiguousarray(keys).view(np.int64))


def _multiply(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the upper and lower 64 bits of the unsigned 128-bit product.

    Each int64 holds the bits of an unsigned number.
    """
    x_high, x_low = (x >> 32) & _LOW, x & _LOW
    y_high, y_low = (y >> 32) & _LOW, y & _LOW
    cross, other = x_high * y_low, x_low * y_high
    carried = ((x_low * y_low) >> 32 & _LOW) + (cross & _LOW) + (other & _LOW)
    high = x_high * y_high + (cross >> 32 & _LOW) + (other >> 32 & _LOW) + (carried >> 32)
    return high, x * y


def _signed(numbers: Sequence[int]) -> Tensor:
    """Return unsigned 64-bit numbers as int64 with the same bits."""
    return torch.from_numpy(np.array(numbers, dtype=np.uint64).view(np.int64))
