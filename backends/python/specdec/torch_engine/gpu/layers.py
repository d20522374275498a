"""Embedding, layers and final norm over a rectangle of rows; shapes do not depend on values."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.gpu.buckets import PassInputs
from specdec.torch_engine.gpu.tiles import pad_rows, product
from specdec.torch_engine.layers.kv_cache import SPLIT_SIZE
from specdec.torch_engine.layers.weights import ModelWeights


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor
    qkv: Tensor
    output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class _CacheRows(NamedTuple):
    """Indices of the cache rows that a pass reads and writes.

    They are rows of one layer's `view(-1, head_dim)`. S, R and N are those of PassInputs; G is the
    number of query heads that share a key head.
    """

    written: Tensor
    """[S * R * 2 kv_heads] int64: for each row its new keys, then its new values."""
    keys_read: Tensor
    """[S * kv_heads * N * SPLIT_SIZE] int64: the keys of each sequence."""
    values_read: Tensor
    """The values of each sequence, in the same shape."""
    mask: Tensor
    """[S, 1, R * G, N * SPLIT_SIZE] in the engine's dtype: 0 where a row sees a key, else −inf."""


class Layers:
    """The weights of a decoder, and its pass; nothing is kept from one pass to the next."""

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        self._config = config
        self._embedding, self._final_norm = weights.embedding, weights.final_norm
        self.device, self.dtype = weights.embedding.device, weights.embedding.dtype
        angles = config.rotation_angles().to(self.device)
        self._rotation = torch.polar(torch.ones_like(angles), angles)[:, None]
        self._kv_heads = torch.arange(config.num_kv_heads, device=self.device)
        self._offsets = torch.arange(SPLIT_SIZE, device=self.device)
        self._layers = [
            _Layer(
                each.attention_norm,
                each.qkv,
                each.output,
                each.mlp_norm,
                torch.cat((each.gate, each.up)),
                each.down,
            )
            for each in weights.layers
        ]

    def forward(self, inputs: PassInputs, storage: Tensor) -> Tensor:
        """Run a pass: return hidden states [S * R, hidden] float32, and write new keys and values.

        `storage` is that of KVCache.
        """
        config = self._config
        cache_rows = self._cache_rows(inputs, storage.shape[2])
        num_rows = inputs.tokens.numel()
        residual = self._embedding[pad_rows(inputs.tokens.flatten())].float()
        rotation = self._rotation[pad_rows(inputs.positions.flatten())]
        with attention_kernel(self.device):
            for layer, cache in zip(self._layers, storage, strict=True):
                rows = cache.view(-1, config.head_dim)
                self._run_layer(layer, residual, rotation, rows, cache_rows, inputs.tokens.shape)
        shape = (config.hidden_size,)
        return rms_norm(residual[:num_rows], shape, self._final_norm, config.rms_norm_eps)

    def _cache_rows(self, inputs: PassInputs, num_pool_blocks: int) -> _CacheRows:
        config, positions = self._config, inputs.positions
        num_kv, num_grouped = config.num_kv_heads, config.num_heads // config.num_kv_heads
        value_offset = num_pool_blocks * num_kv * SPLIT_SIZE
        blocks = inputs.table.gather(1, positions // SPLIT_SIZE)
        keys = (blocks[..., None] * num_kv + self._kv_heads) * SPLIT_SIZE
        keys = keys + (positions % SPLIT_SIZE)[..., None]  # [S, R, kv_heads]
        read = (inputs.table[:, None] * num_kv + self._kv_heads[:, None]) * SPLIT_SIZE
        keys_read = (read[..., None] + self._offsets).flatten()
        num_sequences, num_rows = positions.shape
        length = inputs.table.shape[1] * SPLIT_SIZE
        hidden = torch.arange(length, device=self.device) > positions[..., None]  # [S, R, L]
        mask = torch.zeros(
            (num_sequences, 1, num_rows, num_grouped, length), dtype=self.dtype, device=self.device
        ).masked_fill_(hidden[:, None, :, None], float("-inf"))
        return _CacheRows(
            torch.cat((keys, keys + value_offset), dim=-1).flatten(),
            keys_read,
            keys_read + value_offset,
            mask.view(num_sequences, 1, num_rows * num_grouped, length),
        )

    def _run_layer(
        self,
        layer: _Layer,
        residual: Tensor,
        rotation: Tensor,
        cache: Tensor,
        cache_rows: _CacheRows,
        rectangle: torch.Size,
    ) -> None:
        """Run one layer: add to `residual`, and write new keys and values into `cache`.

        `residual` is [T, hidden] float32, with T a multiple of TILE. `cache` [rows, head_dim] is
        the layer's part of the cache.
        """
        config = self._config
        num_rows, num_heads = rectangle.numel(), config.num_heads
        num_turned = num_heads + config.num_kv_heads
        shape, eps = (config.hidden_size,), config.rms_norm_eps

        x = rms_norm(residual, shape, layer.attention_norm, eps).to(self.dtype)
        heads = product(x, layer.qkv).view(len(x), -1, config.head_dim)
        pairs = heads[:, :num_turned].float().unflatten(-1, (-1, 2))
        turned = torch.view_as_real(torch.view_as_complex(pairs) * rotation).flatten(-2)
        queries = turned[:num_rows, :num_heads].to(self.dtype)
        keys = turned[:num_rows, num_heads:].to(self.dtype)
        new_kv = torch.cat((keys, heads[:num_rows, num_turned:]), dim=1)
        cache.index_copy_(0, cache_rows.written, new_kv.view(-1, config.head_dim))
        attended = pad_rows(self._attend(queries, cache, cache_rows, rectangle))
        residual.add_(product(attended, layer.output))

        x = rms_norm(residual, shape, layer.mlp_norm, eps).to(self.dtype)
        gate, up = product(x, layer.gate_up).chunk(2, dim=-1)
        residual.add_(product(silu(gate).mul_(up), layer.down))

    def _attend(
        self, queries: Tensor, cache: Tensor, cache_rows: _CacheRows, rectangle: torch.Size
    ) -> Tensor:
        """Return the attention of the queries: [S * R, heads * head_dim].

        `queries` are [S * R, heads, head_dim]. The heads that share keys become rows, so that each
        key is read once for all of them.
        """
        config, (num_sequences, num_rows) = self._config, rectangle
        num_kv, head_dim = config.num_kv_heads, config.head_dim
        folded = queries.view(num_sequences, num_rows, num_kv, -1, head_dim).transpose(1, 2)
        keys = cache.index_select(0, cache_rows.keys_read).view(num_sequences, num_kv, -1, head_dim)
        values = cache.index_select(0, cache_rows.values_read).view(keys.shape)
        mixed = scaled_dot_product_attention(
            folded.reshape(num_sequences, num_kv, -1, head_dim),
            keys,
            values,
            attn_mask=cache_rows.mask,
            scale=config.head_dim**-0.5,
        )
        unfolded = mixed.view(num_sequences, num_kv, num_rows, -1, head_dim).transpose(1, 2)
        return unfolded.reshape(num_sequences * num_rows, -1)


def attention_kernel(device: torch.device) -> AbstractContextManager[None]:
    """Return a context that selects an attention kernel whose rows do not depend on each other.

    It is PyTorch's memory-efficient attention. It takes a mask, gives each tile of queries to one
    thread block, and visits all keys in order. Neither the batch nor padding the keys with −inf
    (factors of exactly 0 and 1) changes a bit. A CPU has no such kernel and keeps its default.
    """
    if device.type != "cuda":
        return nullcontext()
    kernel: AbstractContextManager[None] = sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION)
    return kernel
