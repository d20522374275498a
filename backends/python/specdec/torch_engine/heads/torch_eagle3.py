"""The arithmetic of an EAGLE-3 head in PyTorch's operations."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.heads.weights import Eagle3Weights
from specdec.torch_engine.layers.decoder import Rows
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.layers.linear import Linear
from specdec.torch_engine.layers.output_head import Output, TorchOutput
from specdec.torch_engine.layers.torch_decoder import RowLayout, TorchLayer, rotation_table


class TorchEagle3:
    """The fusion of the target's states and the head's layer, in PyTorch's operations.

    The head's keys and values are the last layer of the target's cache.
    """

    def __init__(self, config: ModelConfig, weights: Eagle3Weights, embedding: Tensor) -> None:
        self._config = config
        self._weights = weights
        self._embedding = embedding
        self._dtype = embedding.dtype
        self._fusion = Linear(weights.fusion)
        self._layer = TorchLayer(config, weights.layer)
        self._rotation = rotation_table(config, embedding.device)

    def fuse(self, states: Tensor) -> Tensor:
        """Return the fused states [T, hidden] float32 of `states` [T ≥ 2, 3 * hidden] float32."""
        return self._fusion.summed(states.to(self._dtype))

    def run(self, rows: Rows, given: Tensor, cache: KVCache) -> tuple[Tensor, Tensor]:
        """Run the layer; return the asked rows after the final norm, and before it.

        `given` [T, hidden] float32 is the state that each row reads. Both results are
        [asked, hidden] float32. Writes the new keys and values into the cache.
        """
        config, weights = self._config, self._weights
        shape, eps = (config.hidden_size,), config.rms_norm_eps
        device = given.device
        embedded = self._embedding[torch.from_numpy(rows.tokens).to(device)].float()
        read = (
            rms_norm(embedded, shape, weights.embedding_norm, eps),
            rms_norm(given, shape, self._layer.attention_norm, eps),
        )
        residual = given.clone()
        layout = RowLayout.of(rows, cache, self._rotation)
        x = torch.cat(read, dim=1).to(self._dtype)
        self._layer.run(x, residual, cache.layer(config.num_layers), layout)
        last = residual[torch.from_numpy(rows.asked).to(device)]
        return rms_norm(last, shape, weights.final_norm, eps), last

    def output(self, weight: Tensor) -> Output:
        """Return the product with an output matrix `weight` [head vocab, hidden]."""
        return TorchOutput(weight)
