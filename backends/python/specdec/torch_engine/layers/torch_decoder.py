"""The decoder in PyTorch's operations.

It runs on a GPU without graphs, on a CPU in float32, and on a CPU without native kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.layers import attention
from specdec.torch_engine.layers.decoder import Rows
from specdec.torch_engine.layers.kv_cache import SPLIT_SIZE, KVCache
from specdec.torch_engine.layers.linear import MAX_INNER, Linear
from specdec.torch_engine.layers.output_head import Output, TorchOutput
from specdec.torch_engine.layers.weights import LayerWeights, ModelWeights


@dataclass(frozen=True, slots=True, eq=False)
class RowLayout:
    """The positions and cache slots of a pass's T rows, computed once for all layers."""

    rotation: Tensor
    """[T, heads + 2 kv, head_dim / 2] complex64: the factors of RoPE (see `rotation_table`)."""
    cache_index: Tensor
    """[T * 2 kv] int64: the rows of a layer's cache for new keys and values (see
    KVCache.write_index)."""
    groups: list[attention.AttentionGroup]
    """The groups of sequences that attention computes together."""

    @classmethod
    def of(cls, rows: Rows, cache: KVCache, rotation_table: Tensor) -> RowLayout:
        device = rotation_table.device
        written = [
            cache.write_index(sequence, own)
            for sequence, own in zip(rows.sequences, rows.positions, strict=True)
        ]
        positions = torch.from_numpy(np.concatenate(rows.positions)).to(device)
        return cls(
            rotation_table[positions],
            torch.from_numpy(np.concatenate(written).ravel()).to(device),
            attention.plan(rows.sequences, rows.positions, device),
        )


class TorchLayer:
    """One decoder layer: attention and MLP, with their norms."""

    def __init__(self, config: ModelConfig, weights: LayerWeights) -> None:
        self._config = config
        self.attention_norm = weights.attention_norm
        self._dtype = weights.qkv.dtype
        self._qkv = Linear(weights.qkv)
        self._output = Linear(weights.output)
        self._mlp_norm = weights.mlp_norm
        self._gate_up = Linear(torch.cat((weights.gate, weights.up)))
        self._down = Linear(weights.down)

    def run(self, x: Tensor, residual: Tensor, cache: Tensor, layout: RowLayout) -> None:
        """Add the layer's attention and MLP to `residual` [T, hidden] float32, in place.

        `x` [T, in] is the normalised input of the attention, in the dtype of the weights. `cache`
        is the result of KVCache.layer; the new keys and values are written into it.
        """
        config = self._config
        num_rows, num_heads, num_kv = residual.shape[0], config.num_heads, config.num_kv_heads
        qkv = self._qkv(x).float() if x.shape[1] <= MAX_INNER else self._qkv.summed(x)
        pairs = qkv.view(num_rows, -1, config.head_dim // 2, 2)
        rotated = torch.view_as_real(torch.view_as_complex(pairs) * layout.rotation).flatten(-2)
        heads = rotated.to(self._dtype)  # queries, keys, values: [T, heads + 2 kv, head_dim]
        new_kv = heads[:, num_heads:].reshape(-1, config.head_dim)
        cache.view(-1, config.head_dim).index_copy_(0, layout.cache_index, new_kv)
        queries = heads[:, :num_heads].view(num_rows, num_kv, num_heads // num_kv, -1)
        self._output.add_to(residual, attention.attend(queries, cache, layout.groups))

        shape, eps = (config.hidden_size,), config.rms_norm_eps
        x = rms_norm(residual, shape, self._mlp_norm, eps).to(self._dtype)
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        self._down.add_to(residual, silu(gate).mul_(up))


class TorchDecoder:
    """The decoder in PyTorch's operations.

    Rows of all sequences go through each matrix in one product (see linear.py).
    """

    min_rows = 2
    block_size = SPLIT_SIZE

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, taps: tuple[int, ...] = ()
    ) -> None:
        """Prepare the layers; `taps` are those whose inputs a drafting head reads, ascending."""
        self._config = config
        self._taps = taps
        self._embedding = weights.embedding
        self._final_norm = weights.final_norm
        self._device, self._dtype = weights.embedding.device, weights.embedding.dtype
        self._rotation = rotation_table(config, self._device)
        self._layers = [TorchLayer(config, each) for each in weights.layers]

    def run(self, rows: Rows, cache: KVCache) -> Tensor:
        layout = RowLayout.of(rows, cache, self._rotation)
        residual = self._embedding[torch.from_numpy(rows.tokens).to(self._device)].float()
        shape, eps = (self._config.hidden_size,), self._config.rms_norm_eps
        for index, layer in enumerate(self._layers):
            if rows.states is not None and index in self._taps:
                rows.states[:, self._taps.index(index)] = residual
            x = rms_norm(residual, shape, layer.attention_norm, eps).to(self._dtype)
            layer.run(x, residual, cache.layer(index), layout)
        last = residual[torch.from_numpy(rows.asked).to(self._device)]
        return rms_norm(last, shape, self._final_norm, eps)

    def output(self, weight: Tensor) -> Output:
        return TorchOutput(weight)


def rotation_table(config: ModelConfig, device: torch.device) -> Tensor:
    """Return the factors that rotate a row of queries, keys and values at each position.

    The result is [max_position, heads + 2 kv, head_dim / 2] complex64. The queries' part includes
    attention's scale 1 / sqrt(head_dim). The values' part is 1, so that one product serves the
    whole row.
    """
    angles = config.rotation_angles().to(device)
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]
    scale = config.head_dim**-0.5
    return torch.cat(
        (
            (turn * scale).expand(-1, config.num_heads, -1),
            turn.expand(-1, config.num_kv_heads, -1),
            torch.ones_like(turn).expand(-1, config.num_kv_heads, -1),
        ),
        dim=1,
    )
