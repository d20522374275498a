"""The decoder as one call of the compiled library."""

from __future__ import annotations

import ctypes
import functools
import logging
import time
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.errors import ConfigurationError
from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.decoder import Rows
from specdec.torch_engine.head import NEAR_TIE, Output
from specdec.torch_engine.kv_cache import KVCache
from specdec.torch_engine.native import library
from specdec.torch_engine.native.packing import PackedMatrix, pack
from specdec.torch_engine.weights import LayerWeights, ModelWeights

LANES = 16
"""Floats in a vector: what hidden size, head size and inner size must be multiples of."""

MAX_HEAD_DIM = 256
"""What `merge` in attention.c has room for."""

KERNELS = ("auto", "native", "torch", "graph")

WEIGHT_DTYPES = ("auto", "int8")

logger = logging.getLogger(__name__)


def is_wanted(
    kernels: str, weight_dtype: str, config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> bool:
    """Whether this model is to run here. Raises ConfigurationError if it must and cannot."""
    for name, given, known in (
        ("kernels", kernels, KERNELS),
        ("weight_dtype", weight_dtype, WEIGHT_DTYPES),
    ):
        if given not in known:
            raise ConfigurationError(f"{name} must be one of {known}; given {given!r}")
    if kernels in {"torch", "graph"} and weight_dtype == "auto":
        return False
    is_other = kernels in {"torch", "graph"}
    reason = f"kernels is {kernels}" if is_other else _obstacle(config, device, dtype)
    if reason is None:
        return True
    if weight_dtype != "auto":
        raise ConfigurationError(
            f"weight_dtype is {weight_dtype}, which only the compiled kernels multiply "
            f"(kernels auto or native, device cpu, dtype bfloat16): {reason}"
        )
    if kernels == "native":
        raise ConfigurationError(f"kernels is native, which cannot be here: {reason}")
    if device.type == "cpu" and dtype == torch.bfloat16:
        logger.warning("the CPU runs PyTorch's operations, at less than half the speed: %s", reason)
    return False


def _obstacle(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> str | None:
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
    """Owns its packed weights, rotation tables and threads."""

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
        """`weight_dtype` packs the matrices as they are (`auto`) or quantised (`int8`).

        `num_threads` of 0 are as many as PyTorch would take. `taps`: the layers whose inputs a head
        reads, ascending.
        The embedding stays as it is; of the others nothing is kept but the packed form.
        """
        self._is_int8 = weight_dtype == "int8"
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


class DecoderMemory:
    """What the library reads of a decoder, kept as long as this lives."""

    def __init__(
        self,
        config: ModelConfig,
        layers: Sequence[LayerWeights],
        embedding: Tensor,
        final_norm: Tensor,
        *,
        is_int8: bool,
        embedding_norm: Tensor | None = None,
        taps: tuple[int, ...] = (),
    ) -> None:
        """`embedding_norm`: of a head, whose attention reads the embedding too."""
        cosines, sines = _rotation_tables(config)
        packed = [_pack_layer(layer, is_int8=is_int8) for layer in layers]
        shape = library.DecoderShape(
            config.hidden_size,
            config.intermediate_size,
            len(layers),
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            config.rms_norm_eps,
        )
        pointers = (library.LayerPointers * len(packed))(
            *(
                library.LayerPointers(
                    layer.attention_norm.data_ptr(),
                    layer.mlp_norm.data_ptr(),
                    *(matrix.pointers() for matrix in matrices),
                )
                for layer, matrices in zip(layers, packed, strict=True)
            )
        )
        tapped = _int32(taps)
        self.hidden_size = config.hidden_size
        self.pointers = library.DecoderPointers(
            ctypes.pointer(shape),
            pointers,
            cosines.data_ptr(),
            sines.data_ptr(),
            embedding.data_ptr(),
            final_norm.data_ptr(),
            None if embedding_norm is None else embedding_norm.data_ptr(),
            tapped.ctypes.data,
            len(taps),
        )
        norms = [(layer.attention_norm, layer.mlp_norm) for layer in layers]
        self._kept = (cosines, sines, packed, norms, embedding, final_norm, embedding_norm, tapped)


def run_rows(
    pool: int,
    model: DecoderMemory,
    rows: Rows,
    cache: KVCache,
    first_layer: int,
    given: Tensor | None = None,
    carried: Tensor | None = None,
) -> Tensor:
    """One pass → [asked, hidden] float32 behind the final norm.

    `first_layer`: of the cache, where the model's layers begin. `given` [T, hidden] float32: what
    a head starts from; `carried` [asked, hidden] gets what it says before the norm.
    """
    sequences = rows.sequences
    arrays = (
        _int32(rows.tokens),
        _int32(np.concatenate(rows.positions)),
        _starts([len(own) for own in rows.positions]),
        _int32([block for sequence in sequences for block in sequence.blocks]),
        _starts([len(sequence.blocks) for sequence in sequences]),
        _int32(rows.asked),
    )
    out = torch.empty(len(rows.asked), model.hidden_size)
    batch = library.RowBatch(
        len(rows.tokens),
        len(sequences),
        len(rows.asked),
        *(array.ctypes.data for array in arrays),
        out.data_ptr(),
        *(None if each is None else each.data_ptr() for each in (given, carried, rows.states)),
        cache.storage[first_layer].data_ptr(),
        cache.num_blocks,
    )
    if library.load().decoder_run(pool, model.pointers, batch):
        raise MemoryError(f"no memory for a pass of {len(rows.tokens)} rows")
    return out


class NativeOutput:
    """The product with an output matrix, and its largest columns."""

    def __init__(self, functions: ctypes.CDLL, pool: int, weight: Tensor, *, is_int8: bool) -> None:
        """`weight` [head vocab, hidden] bf16, which stays: near ties are told apart with it."""
        self._library = functions
        self._pool = pool
        self._rows = weight.contiguous()
        self._packed = pack(weight, is_int8=is_int8)
        self._matrix = self._packed.pointers()

    def logits(self, hidden: Tensor) -> Tensor:
        (num_columns, inner), num_rows = self._rows.shape, len(hidden)
        x, out = hidden.contiguous(), torch.empty(num_rows, num_columns)
        if self._library.product(
            self._pool, self._matrix, num_columns, inner, x.data_ptr(), num_rows, out.data_ptr()
        ):
            raise MemoryError(f"no memory for the logits of {num_rows} rows")
        return out

    def most_likely(self, hidden: Tensor) -> Tensor:
        (num_columns, inner), num_rows = self._rows.shape, len(hidden)
        x, chosen = hidden.contiguous(), torch.empty(num_rows, dtype=torch.int64)
        if self._library.largest_columns(
            self._pool, self._matrix, self._rows.data_ptr(), num_columns, inner,
            x.data_ptr(), num_rows, NEAR_TIE, chosen.data_ptr(),
        ):  # fmt: skip
            raise MemoryError(f"no memory for the logits of {num_rows} rows")
        return chosen


def native_output(weight: Tensor, num_threads: int) -> NativeOutput:
    """The product with an output matrix [head vocab, hidden] bf16, on the pool of so many."""
    return NativeOutput(library.load(), threads(num_threads), weight, is_int8=False)


@functools.cache
def _default_num_threads() -> int:
    """What PyTorch had before there was a pool."""
    return torch.get_num_threads()


def threads(num_threads: int) -> int:
    """A pool of so many (0: PyTorch's choice); models of one process that ask for as many share it.

    PyTorch keeps one thread: two teams would wait for the same cores.
    """
    default = _default_num_threads()
    return _threads(num_threads or default)


@functools.cache
def _threads(num_threads: int) -> int:
    torch.set_num_threads(1)
    pool: int | None = library.load().pool_new(num_threads)
    if not pool:
        raise ConfigurationError(f"the system gives no {num_threads} threads")
    return pool


def read_speed(num_bytes: int) -> float:
    """Bytes per second at which all threads together read so much memory."""
    memory = _memory(num_bytes)
    sums = np.zeros(64, dtype=np.int32)
    start = time.perf_counter()
    library.load().read_memory(threads(0), memory.ctypes.data, num_bytes, sums.ctypes.data)
    return num_bytes / (time.perf_counter() - start)


@functools.cache
def _memory(num_bytes: int) -> npt.NDArray[np.uint8]:
    """Written once: pages that never were are all the same zeros."""
    return np.ones(num_bytes, dtype=np.uint8)


def _pack_layer(layer: LayerWeights, *, is_int8: bool) -> list[PackedMatrix]:
    """In the order of LayerPointers; sixteen rows of the gate, then the sixteen of `up`."""
    num_in = layer.gate.shape[1]
    both = torch.stack((layer.gate.view(-1, LANES, num_in), layer.up.view(-1, LANES, num_in)), 1)
    matrices = (layer.qkv, layer.output, both.view(-1, num_in), layer.down)
    return [pack(matrix, is_int8=is_int8) for matrix in matrices]


def _rotation_tables(config: ModelConfig) -> tuple[Tensor, Tensor]:
    """[max_position, head_dim] each: (x, y) → (x cos - y sin, y cos + x sin), side by side."""
    angles = config.rotation_angles()
    cosines, sines = angles.cos(), angles.sin()
    return (
        torch.stack((cosines, cosines), dim=-1).flatten(1).contiguous(),
        torch.stack((-sines, sines), dim=-1).flatten(1).contiguous(),
    )


def _int32(values: npt.ArrayLike) -> npt.NDArray[np.int32]:
    return np.ascontiguousarray(values, dtype=np.int32)


def _starts(lengths: list[int]) -> npt.NDArray[np.int32]:
    return _int32([0, *accumulate(lengths)])
