"""A decoder behind one interface: compiled code on a CPU, graphs on CUDA, PyTorch's operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from specdec.torch_engine.head import Output
from specdec.torch_engine.kv_cache import CachedSequence, KVCache, TokenIds


@dataclass(frozen=True, slots=True)
class Rows:
    """What runs in a pass, in batch order; the cache has room for it already."""

    tokens: TokenIds
    """[T] int32, those of all sequences behind each other."""
    sequences: list[CachedSequence]
    positions: list[npt.NDArray[np.int64]]
    """Of each sequence's own rows, ascending."""
    asked: npt.NDArray[np.int64]
    """[n] the rows whose results are wanted."""
    states: Tensor | None = None
    """[T, taps, hidden] float32, to be filled with what enters the tapped layers."""


class Decoder(Protocol):
    """Embedding, layers and final norm of one model.

    A row's result depends on its own sequence alone, to the bit.
    """

    min_rows: int
    """A pass with fewer rows sums in another order."""

    block_size: int
    """Positions in one block of the cache that it reads and writes."""

    def run(self, rows: Rows, cache: KVCache) -> Tensor:
        """→ [n, hidden] float32 of the rows asked for; writes the new keys and values."""

    def output(self, weight: Tensor) -> Output:
        """The product with an output matrix [head vocab, hidden]."""
