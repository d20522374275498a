"""The layers as one call of the compiled library."""

from __future__ import annotations

import ctypes
import functools
import logging

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.errors import ConfigurationError
from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.kv_cache import KVCache
from specdec.torch_engine.layers import Product, Rows
from specdec.torch_engine.native import library
from specdec.torch_engine.weights import LayerWeights

PANEL = 32
"""Columns of a result that are computed together (products.h)."""

LANES = 16
"""Floats in a vector: what hidden size, head size and inner size must be multiples of."""

KERNELS = ("auto", "native", "torch")

logger = logging.getLogger(__name__)


def is_wanted(kernels: str, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this model is to run here. Raises ConfigurationError if it must and cannot."""
    if kernels not in KERNELS:
        raise ConfigurationError(f"kernels must be one of {KERNELS}; given {kernels!r}")
    if kernels == "torch":
        return False
    reason = _obstacle(config, device, dtype)
    if reason is None:
        return True
    if kernels == "native":
        raise ConfigurationError(f"kernels is native, which cannot be here: {reason}")
    if device.type == "cpu" and dtype == torch.bfloat16:
        logger.warning("the CPU runs PyTorch's operations, three times slower: %s", reason)
    return False


def _obstacle(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cpu" or dtype != torch.bfloat16:
        return f"it computes in bfloat16 on a CPU; asked for {dtype} on {device}"
    for name in ("hidden_size", "intermediate_size", "head_dim"):
        if getattr(config, name) % LANES:
            return f"{name} must be a multiple of {LANES}; given {getattr(config, name)}"
    try:
        library.load()
    except library.NoLibraryError as error:
        return str(error)
    return None


class NativeLayers:
    """Owns its packed weights, rotation tables and threads."""

    min_rows = 1

    def __init__(self, config: ModelConfig, layers: tuple[LayerWeights, ...]) -> None:
        self._library = library.load()
        self._pool = _threads()
        cosines, sines = _rotation_tables(config)
        packed = [_pack_layer(layer) for layer in layers]
        shape = library.DecoderShape(
            config.hidden_size,
            config.intermediate_size,
            config.num_layers,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            config.rms_norm_eps,
        )
        pointers = (library.LayerPointers * len(packed))(
            *(library.LayerPointers(*(each.data_ptr() for each in layer)) for layer in packed)
        )
        self._model = library.Decoder(
            ctypes.pointer(shape),
            pointers,
            cosines.data_ptr(),
            sines.data_ptr(),
        )
        self._kept = (cosines, sines, packed)

    def run(self, residual: Tensor, rows: Rows, cache: KVCache) -> None:
        positions = _int32(np.concatenate(rows.positions))
        starts = _starts([len(own) for own in rows.positions])
        block_starts = _starts([len(sequence.blocks) for sequence in rows.sequences])
        blocks = _int32([block for sequence in rows.sequences for block in sequence.blocks])
        batch = library.RowBatch(
            len(positions),
            len(rows.sequences),
            *(each.ctypes.data for each in (positions, starts, blocks, block_starts)),
            residual.data_ptr(),
            cache.storage.data_ptr(),
            cache.num_blocks,
        )
        if self._library.decoder_run(self._pool, self._model, batch):
            raise MemoryError(f"no memory for a pass of {len(positions)} rows")

    def product(self, weight: Tensor) -> Product:
        packed, (num_columns, inner) = pack(weight), weight.shape

        def multiply(hidden: Tensor) -> Tensor:
            x = hidden.to(torch.bfloat16).contiguous()
            out = torch.empty(len(x), num_columns)
            self._library.product(
                self._pool, packed.data_ptr(), num_columns, inner, x.data_ptr(), len(x),
                out.data_ptr(),
            )  # fmt: skip
            return out

        return multiply


@functools.cache
def _threads() -> int:
    """The pool of this process, as large as PyTorch's was.

    PyTorch keeps one: two teams would wait for the same cores.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool: int | None = library.load().pool_new(num_threads)
    if not pool:
        raise ConfigurationError(f"the system gives no {num_threads} threads")
    return pool


def pack(weight: Tensor) -> Tensor:
    """[out, in] bf16 → panels [out / 32, in / 2, 32, 2] (products.h), zeros behind the last row."""
    num_out, num_in = weight.shape
    num_panels = -(-num_out // PANEL)
    padded = weight.new_zeros(num_panels * PANEL, num_in)
    padded[:num_out] = weight
    return padded.view(num_panels, PANEL, num_in // 2, 2).transpose(1, 2).contiguous()


def _pack_layer(layer: LayerWeights) -> tuple[Tensor, ...]:
    """In the order of LayerPointers; sixteen rows of the gate, then the sixteen of `up`."""
    num_in = layer.gate.shape[1]
    both = torch.stack((layer.gate.view(-1, LANES, num_in), layer.up.view(-1, LANES, num_in)), 1)
    return (
        layer.attention_norm,
        layer.mlp_norm,
        pack(layer.qkv),
        pack(layer.output),
        pack(both.view(-1, num_in)),
        pack(layer.down),
    )


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
    return _int32(np.concatenate(([0], np.cumsum(lengths))))
