"""The decoder's layers behind one interface: PyTorch's operations, or compiled code on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from specdec.torch_engine.kv_cache import CachedSequence, KVCache

Product = Callable[[Tensor], Tensor]
"""hidden states [n, hidden] float32 → logits [n, head vocab]."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What runs in a pass, in batch order; the cache has room for it already."""

    sequences: list[CachedSequence]
    positions: list[npt.NDArray[np.int64]]
    """Of each sequence's own rows, ascending."""


class Layers(Protocol):
    """All layers of one model. A row's result depends on its own sequence alone, to the bit."""

    min_rows: int
    """A pass with fewer rows sums in another order."""

    def run(self, residual: Tensor, rows: Rows, cache: KVCache) -> None:
        """residual [T, hidden] float32, updated in place; writes the new keys and values."""

    def product(self, weight: Tensor) -> Product:
        """The product with an output matrix [head vocab, hidden]."""
