"""The layer of an EAGLE-3 head in the compiled library."""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.heads.weights import Eagle3Weights
from specdec.torch_engine.layers.decoder import Rows
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.layers.output_head import Output
from specdec.torch_engine.native.native_decoder import quantised_output
from specdec.torch_engine.native.passes import DecoderMemory, run_rows
from specdec.torch_engine.native.pool import threads


class NativeEagle3:
    """The fusion of the target's states, and the layer, whose keys are the cache's last layer.

    Both are quantised to int8, even if the target is not: the target verifies the draft anyway, and
    reading half as many bytes takes a third less time.
    """

    def __init__(
        self, config: ModelConfig, weights: Eagle3Weights, embedding: Tensor, num_threads: int
    ) -> None:
        self._num_threads = num_threads
        self._pool = threads(num_threads)
        self._layer = config.num_layers
        self._fusion = self.output(weights.fusion)
        self._model = DecoderMemory(
            config,
            (weights.layer,),
            embedding,
            weights.final_norm,
            is_int8=True,
            embedding_norm=weights.embedding_norm,
        )

    def fuse(self, states: Tensor) -> Tensor:
        """Return the fusion [T, hidden] float32 of the target's states [T, 3 * hidden] float32."""
        return self._fusion.logits(states)

    def run(self, rows: Rows, given: Tensor, cache: KVCache) -> tuple[Tensor, Tensor]:
        """Return states after the final norm and before it; write the new keys and values.

        `given` [T, hidden] float32 is the state that each row reads. Both results are [asked,
        hidden] float32.
        """
        carried = torch.empty(len(rows.asked), self._model.hidden_size)
        given = given.contiguous()
        hidden = run_rows(self._pool, self._model, rows, cache, self._layer, given, carried)
        return hidden, carried

    def output(self, weight: Tensor) -> Output:
        """Return the product with an output matrix [head vocab, hidden] bf16, in int8."""
        return quantised_output(weight, self._num_threads)
