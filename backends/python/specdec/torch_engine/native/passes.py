"""One pass of a decoder through the compiled library: the memory that it reads, and the call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.layers.decoder import Rows
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.layers.weights import LayerWeights
from specdec.torch_engine.native import library
from specdec.torch_engine.native.packing import PackedMatrix, pack

LANES = 16
"""Floats in a vector; hidden size, head size and inner size must be multiples of it."""


class DecoderMemory:
    """The memory of a decoder that the library reads; this object keeps it alive."""

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
        """Pack the layers' matrices, quantised if `is_int8`, and keep the rest as it is.

        `embedding_norm` [hidden] float32 is for a head, whose attention also reads the embedding.
        `taps` are the layers whose inputs may be asked for, ascending.
        """
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
    """Run one pass and return [asked, hidden] float32, the states after the final norm.

    `pool` is the result of `threads`. `first_layer` is the layer of the cache at which the model's
    layers begin. `given` [T, hidden] float32 is the state from which each row of a head starts;
    without it, rows start from their token's embedding. `carried` [asked, hidden] receives the
    states before the final norm. Raises MemoryError. Raises IndexError for a row after the end of
    its sequence's blocks, because the library would write outside of them.
    """
    sequences = rows.sequences
    for sequence, own in zip(sequences, rows.positions, strict=True):
        num_positions = len(sequence.blocks) * cache.block_size
        if own[-1] >= num_positions:
            raise IndexError(f"position {own[-1]} of a sequence with room for {num_positions}")
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


def _pack_layer(layer: LayerWeights, *, is_int8: bool) -> list[PackedMatrix]:
    """Pack a layer's matrices in the order of LayerPointers.

    Gate and `up` alternate: sixteen rows of the gate, then the sixteen rows of `up` for them.
    """
    num_in = layer.gate.shape[1]
    both = torch.stack((layer.gate.view(-1, LANES, num_in), layer.up.view(-1, LANES, num_in)), 1)
    matrices = (layer.qkv, layer.output, both.view(-1, num_in), layer.down)
    return [pack(matrix, is_int8=is_int8) for matrix in matrices]


def _rotation_tables(config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Return cosines and signed sines, [max_position, head_dim] float32 each.

    Dimensions that rotate together lie side by side: (x, y) → (x cos - y sin, y cos + x sin).
    """
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
