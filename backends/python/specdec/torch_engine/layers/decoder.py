"""The interface that all decoders share.

There are three implementations: compiled code on a CPU (`native/`), CUDA graphs (`gpu/`), and
PyTorch's operations (`torch_decoder.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from specdec.token_ids import TokenIds
from specdec.torch_engine.layers.kv_cache import CachedSequence, KVCache
from specdec.torch_engine.layers.output_head import Output


@dataclass(frozen=True, slots=True)
class Rows:
    """The input of one pass, in batch order; the cache already has room for its keys and values."""

    tokens: TokenIds
    """[T] int32: the tokens of all sequences, one sequence after another."""
    sequences: list[CachedSequence]
    positions: list[npt.NDArray[np.int64]]
    """The positions of each sequence's rows, ascending."""
    asked: npt.NDArray[np.int64]
    """[n] int64: the rows whose results are wanted."""
    states: Tensor | None = None
    """[T, taps, hidden] float32: a buffer that the pass fills with the inputs of the tapped layers;
    None if no head reads them."""


class Decoder(Protocol):
    """The embedding, layers and final norm of one model.

    A row's result depends on its own sequence alone, to the bit.
    """

    min_rows: int
    """Smallest number of rows in a pass; with fewer, the kernels would sum in another order."""

    block_size: int
    """Positions in one block of the KV cache."""

    def run(self, rows: Rows, cache: KVCache) -> Tensor:
        """Return the hidden states [n, hidden] float32 of the asked rows, after the final norm.

        Writes the keys and values of all rows into the cache. Fills `rows.states` if it is given.
        """

    def output(self, weight: Tensor) -> Output:
        """Return the product with an output matrix `weight` [head vocab, hidden]."""
