"""The forward pass of a Llama-family decoder over rows of several sequences at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from specdec.torch_engine import attention, weights
from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.head import Head
from specdec.torch_engine.kv_cache import CachedSequence, KVCache, TokenIds
from specdec.torch_engine.weights import LayerWeights

MIN_ROWS = 2
"""A product with one row sums in another order than one with more (see linear.py)."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one sequence in a pass: tokens to add, the last `num_logits` of which are asked."""

    sequence: CachedSequence
    tokens: TokenIds
    num_logits: int


class LlamaModel:
    """Weights, cache and arithmetic; driven by one thread."""

    def __init__(
        self,
        directory: Path,
        num_cache_tokens: int,
        device: torch.device,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        """`dtype` of weights, products and KV cache; the residual stream is float32 always."""
        self.config = ModelConfig.from_directory(directory)
        self.device = device
        self.cache = KVCache(self.config, num_cache_tokens, device, dtype)
        self._weights = weights.load(directory, self.config, device, dtype)
        self._dtype = dtype
        self._rotation = _rotation_table(self.config, device)

    @property
    def head(self) -> Head:
        """The output matrix, for the hidden states of `run`."""
        return self._weights.head

    @torch.inference_mode()
    def run(self, segments: list[Segment]) -> Tensor:
        """Runs the pass → hidden states after the final norm, [max(asked, 2), hidden] float32.

        Rows are those asked for, in order; a single one comes twice (see linear.py), none gives
        [0, hidden]. Extends each segment's sequence by its tokens.
        """
        tokens: list[TokenIds] = []
        positions: list[npt.NDArray[np.int64]] = []
        cache_rows: list[TokenIds] = []
        asked: list[npt.NDArray[np.int64]] = []
        num_rows = 0
        for segment in segments:
            start = segment.sequence.length
            own = np.arange(start, start + len(segment.tokens))
            self.cache.extend(segment.sequence, segment.tokens)
            ids = segment.tokens
            if len(segments) == 1 and len(ids) < MIN_ROWS:
                own, ids = np.repeat(own, MIN_ROWS), np.repeat(ids, MIN_ROWS)
            positions.append(own)
            tokens.append(ids)
            cache_rows.append(self.cache.write_index(segment.sequence, own))
            num_rows += len(ids)
            asked.append(np.arange(num_rows - segment.num_logits, num_rows))

        groups = attention.plan([s.sequence for s in segments], positions, self.device)
        rotation = self._rotation[torch.from_numpy(np.concatenate(positions)).to(self.device)]
        cache_index = torch.from_numpy(np.concatenate(cache_rows).ravel()).to(self.device)
        ids_tensor = torch.from_numpy(np.concatenate(tokens)).to(self.device)
        residual = self._weights.embedding[ids_tensor].float()
        for index, layer in enumerate(self._weights.layers):
            self._layer(index, layer, residual, rotation, cache_index, groups)
        rows = np.concatenate(asked)
        if len(rows) == 1:
            rows = np.repeat(rows, MIN_ROWS)
        last = residual[torch.from_numpy(rows).to(self.device)]
        return rms_norm(
            last, (self.config.hidden_size,), self._weights.final_norm, self.config.rms_norm_eps
        )

    def _layer(
        self,
        index: int,
        layer: LayerWeights,
        residual: Tensor,
        rotation: Tensor,
        cache_index: Tensor,
        groups: list[attention.AttentionGroup],
    ) -> None:
        """residual [T, hidden] float32, updated in place; rotation [T, heads, head_dim / 2]."""
        config = self.config
        num_rows, num_heads, num_kv = residual.shape[0], config.num_heads, config.num_kv_heads
        shape, eps = (config.hidden_size,), config.rms_norm_eps

        x = rms_norm(residual, shape, layer.attention_norm, eps).to(self._dtype)
        pairs = layer.qkv(x).float().view(num_rows, -1, config.head_dim // 2, 2)
        rotated = torch.view_as_real(torch.view_as_complex(pairs) * rotation).flatten(-2)
        heads = rotated.to(self._dtype)  # queries, keys, values: [T, heads + 2 kv, head_dim]
        cache = self.cache.layer(index)
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
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=device)
    frequencies = config.rope_theta ** -(half / config.head_dim)
    angles = torch.outer(
        torch.arange(config.max_position, dtype=torch.float32, device=device), frequencies
    )
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
