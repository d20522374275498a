"""The decoder in PyTorch's operations: on CPUs in float32, or where nothing can be compiled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from specdec.torch_engine import attention
from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.decoder import Rows
from specdec.torch_engine.head import Output, TorchOutput
from specdec.torch_engine.kv_cache import SPLIT_SIZE, KVCache
from specdec.torch_engine.linear import Linear
from specdec.torch_engine.weights import ModelWeights


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor
    qkv: Linear
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class TorchDecoder:
    """Rows of all sequences go through each matrix together (see linear.py and attention.py)."""

    min_rows = 2
    block_size = SPLIT_SIZE

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        self._config = config
        self._embedding = weights.embedding
        self._final_norm = weights.final_norm
        self._device, self._dtype = weights.embedding.device, weights.embedding.dtype
        self._rotation = _rotation_table(config, self._device)
        self._layers = [
            _Layer(
                each.attention_norm,
                Linear(each.qkv),
                Linear(each.output),
                each.mlp_norm,
                Linear(torch.cat((each.gate, each.up))),
                Linear(each.down),
            )
            for each in weights.layers
        ]

    def run(self, rows: Rows, cache: KVCache) -> Tensor:
        groups = attention.plan(rows.sequences, rows.positions, self._device)
        written = [
            cache.write_index(sequence, own)
            for sequence, own in zip(rows.sequences, rows.positions, strict=True)
        ]
        cache_index = torch.from_numpy(np.concatenate(written).ravel()).to(self._device)
        positions = torch.from_numpy(np.concatenate(rows.positions)).to(self._device)
        rotation = self._rotation[positions]
        residual = self._embedding[torch.from_numpy(rows.tokens).to(self._device)].float()
        for index, layer in enumerate(self._layers):
            self._run_layer(layer, residual, rotation, cache.layer(index), cache_index, groups)
        last = residual[torch.from_numpy(rows.asked).to(self._device)]
        shape = (self._config.hidden_size,)
        return rms_norm(last, shape, self._final_norm, self._config.rms_norm_eps)

    def output(self, weight: Tensor) -> Output:
        return TorchOutput(weight)

    def _run_layer(
        self,
        layer: _Layer,
        residual: Tensor,
        rotation: Tensor,
        cache: Tensor,
        cache_index: Tensor,
        groups: list[attention.AttentionGroup],
    ) -> None:
        """residual [T, hidden] float32, updated in place; rotation [T, heads, head_dim / 2]."""
        config = self._config
        num_rows, num_heads, num_kv = residual.shape[0], config.num_heads, config.num_kv_heads
        shape, eps = (config.hidden_size,), config.rms_norm_eps

        x = rms_norm(residual, shape, layer.attention_norm, eps).to(self._dtype)
        pairs = layer.qkv(x).float().view(num_rows, -1, config.head_dim // 2, 2)
        rotated = torch.view_as_real(torch.view_as_complex(pairs) * rotation).flatten(-2)
        heads = rotated.to(self._dtype)  # queries, keys, values: [T, heads + 2 kv, head_dim]
        new_kv = heads[:, num_heads:].reshape(-1, config.head_dim)
        cache.view(-1, config.head_dim).index_copy_(0, cache_index, new_kv)
        queries = heads[:, :num_heads].view(num_rows, num_kv, num_heads // num_kv, -1)
        layer.output.add_to(residual, attention.attend(queries, cache, groups))

        x = rms_norm(residual, shape, layer.mlp_norm, eps).to(self._dtype)
        gate, up = layer.gate_up(x).chunk(2, dim=-1)
        layer.down.add_to(residual, silu(gate).mul_(up))


def _rotation_table(config: ModelConfig, device: torch.device) -> Tensor:
    """[max_position, heads + 2 kv, head_dim / 2] complex64; queries' part carries the 1/sqrt(d).

    The values' part is 1, so that one product turns a whole qkv row.
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
