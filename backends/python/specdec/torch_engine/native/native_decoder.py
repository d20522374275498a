"""A decoder whose pass is one call of the compiled library."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.layers.decoder import Rows
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.layers.output_head import NEAR_TIE, Output
from specdec.torch_engine.layers.weights import ModelWeights
from specdec.torch_engine.native import library
from specdec.torch_engine.native.packing import pack
from specdec.torch_engine.native.passes import LANES, DecoderMemory, run_rows
from specdec.torch_engine.native.pool import threads

MAX_HEAD_DIM = 256
"""Largest head size for which the attention has room (the same as in model.h)."""


def obstacle(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> str | None:
    """Return why native kernels cannot run this model here; None if they can."""
    if device.type != "cpu" or dtype != torch.bfloat16:
        return f"it computes in bfloat16 on a CPU; asked for {dtype} on {device}"
    for name in ("hidden_size", "intermediate_size", "head_dim"):
        if getattr(config, name) % LANES:
            return f"{name} must be a multiple of {LANES}; given {getattr(config, name)}"
    if config.head_dim > MAX_HEAD_DIM:
        return f"head_dim must be at most {MAX_HEAD_DIM}; given {config.head_dim}"
    try:
        library.load()
    except library.NoLibraryError as error:
        return str(error)
    return None


class NativeDecoder:
    """A decoder in the compiled library, with its packed weights, rotation tables and threads."""

    min_rows = 1
    block_size = 32

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        weight_dtype: str = "auto",
        num_threads: int = 0,
        taps: tuple[int, ...] = (),
    ) -> None:
        """Pack the matrices in bfloat16 if `weight_dtype` is `auto`, else quantised to int8.

        With `num_threads` 0 there are as many threads as PyTorch would use. `taps` are the layers
        whose inputs a head reads, ascending. The embedding is not packed. The other matrices are
        kept in packed form only.
        """
        self._is_int8 = weight_dtype != "auto"
        self._library = library.load()
        self._pool = threads(num_threads)
        self._model = DecoderMemory(
            config,
            weights.layers,
            weights.embedding,
            weights.final_norm,
            is_int8=self._is_int8,
            taps=taps,
        )

    def run(self, rows: Rows, cache: KVCache) -> Tensor:
        assert cache.block_size == self.block_size
        return run_rows(self._pool, self._model, rows, cache, 0)

    def output(self, weight: Tensor) -> Output:
        return NativeOutput(self._library, self._pool, weight, is_int8=self._is_int8)


class NativeOutput:
    """The product with an output matrix, and each row's largest column."""

    def __init__(self, functions: ctypes.CDLL, pool: int, weight: Tensor, *, is_int8: bool) -> None:
        """Pack `weight` [head vocab, hidden] bf16, and keep it.

        Near ties are compared again with the unpacked matrix.
        """
        self._library = functions
        self._pool = pool
        self._rows = weight.contiguous()
        self._packed = pack(weight, is_int8=is_int8)
        self._matrix = self._packed.pointers()

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [n, head vocab] float32 of `hidden` [n, hidden] float32.

        Raises MemoryError.
        """
        (num_columns, inner), num_rows = self._rows.shape, len(hidden)
        x, out = hidden.contiguous(), torch.empty(num_rows, num_columns)
        if self._library.product(
            self._pool, self._matrix, num_columns, inner, x.data_ptr(), num_rows, out.data_ptr()
        ):
            raise MemoryError(f"no memory for the logits of {num_rows} rows")
        return out

    def most_likely(self, hidden: Tensor) -> Tensor:
        """Return the most likely columns [n] int64 of `hidden` [n, hidden] float32.

        The lowest column wins among equals. Raises MemoryError.
        """
        (num_columns, inner), num_rows = self._rows.shape, len(hidden)
        x, chosen = hidden.contiguous(), torch.empty(num_rows, dtype=torch.int64)
        if self._library.largest_columns(
            self._pool, self._matrix, self._rows.data_ptr(), num_columns, inner,
            x.data_ptr(), num_rows, NEAR_TIE, chosen.data_ptr(),
        ):  # fmt: skip
            raise MemoryError(f"no memory for the logits of {num_rows} rows")
        return chosen


def quantised_output(weight: Tensor, num_threads: int) -> NativeOutput:
    """Return a head's product with an output matrix [head vocab, hidden] bf16, in int8.

    It runs on the pool of `num_threads` threads (see `threads`).
    """
    return NativeOutput(library.load(), threads(num_threads), weight, is_int8=True)
