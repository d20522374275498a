"""Decoders of known shapes with random weights: the cost of a pass does not depend on values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.layers.decoder import Rows
from specdec.torch_engine.layers.kv_cache import CachedSequence, KVCache
from specdec.torch_engine.layers.weights import LayerWeights, ModelWeights
from specdec.torch_engine.parts import Parts, assemble


def _shape(
    vocab_size: int,
    hidden_size: int,
    intermediate_size: int,
    num_layers: int,
    heads: tuple[int, int, int],
    draft_vocab_size: int | None = None,
    *,
    tie_embeddings: bool = False,
) -> ModelConfig:
    """Return a configuration; `heads`: query heads, key/value heads, and the size of each."""
    num_heads, num_kv_heads, head_dim = heads
    return ModelConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=1e-5,
        rope_theta=1e5,
        max_position=8192,
        tie_embeddings=tie_embeddings,
        draft_vocab_size=draft_vocab_size,
    )


SHAPES = {
    "tiny": _shape(128, 64, 160, 2, (4, 2, 16)),
    "draft": _shape(49152, 576, 1536, 3, (9, 3, 64), 8192),
    "default": _shape(49152, 576, 1536, 30, (9, 3, 64), tie_embeddings=True),
    "1b": _shape(128256, 2048, 8192, 16, (32, 8, 64), tie_embeddings=True),
    "8b": _shape(128256, 4096, 14336, 32, (32, 8, 128)),
    "70b_slice": _shape(16032, 8192, 3584, 80, (8, 1, 128)),
}
"""Configurations by name.

`draft` and `default` are the default pair (135M), `1b` is Llama 3.2 1B, `8b` is Llama 3.1 8B.
`70b_slice` is one of eight tensor-parallel ranks of Llama 3.1 70B without the communication: an
eighth of the heads, of the MLP and of the vocabulary. From the models' published config.json.
"""


def random_weights(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> ModelWeights:
    """Return weights made on the device, small enough that activations stay finite.

    Matrices and embedding have `dtype`, norms float32.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    num_query_rows = config.num_heads * config.head_dim
    num_kv_rows = config.num_kv_heads * config.head_dim
    generator = torch.Generator(device).manual_seed(0)

    def matrix(num_out: int, num_in: int) -> Tensor:
        empty = torch.empty((num_out, num_in), dtype=dtype, device=device)
        return empty.normal_(std=num_in**-0.5, generator=generator)

    def norm() -> Tensor:
        return torch.ones(hidden, device=device)

    embedding = matrix(config.vocab_size, hidden)
    num_head_rows = config.draft_vocab_size or config.vocab_size
    return ModelWeights(
        embedding=embedding,
        layers=tuple(
            LayerWeights(
                attention_norm=norm(),
                qkv=matrix(num_query_rows + 2 * num_kv_rows, hidden),
                output=matrix(hidden, num_query_rows),
                mlp_norm=norm(),
                gate=matrix(inner, hidden),
                up=matrix(inner, hidden),
                down=matrix(hidden, inner),
            )
            for _ in range(config.num_layers)
        ),
        final_norm=norm(),
        head_rows=embedding if config.tie_embeddings else matrix(num_head_rows, hidden),
        token_of_head_row=None
        if config.draft_vocab_size is None
        else torch.arange(num_head_rows, device=device) * 2,
    )


def random_decoder(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> Parts:
    """Return the CUDA decoder with random weights; on a CPU it runs the same steps, uncaptured."""
    return assemble("graph", config, random_weights(config, device, dtype), device)


class Streams:
    """Sequences in a cache, by number; a sequence's tokens depend on its number alone."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._sequences: dict[int, CachedSequence] = {}

    def rows(self, numbers: Sequence[int], num_rows: int, num_asked: int) -> Rows:
        """Extend each sequence by `num_rows` tokens and return the pass that computes them.

        The last `num_asked` rows of each sequence are wanted. The pass may run again and again,
        with the same tokens at the same positions.
        """
        tokens, sequences, positions = [], [], []
        for number in numbers:
            sequence = self._sequences.get(number)
            if sequence is None:
                sequence = self._sequences[number] = self._cache.acquire(np.zeros(1, np.int32))
            own_positions = np.arange(sequence.length, sequence.length + num_rows)
            text = np.random.default_rng(number).integers(1, 128, 8192)
            own = text[own_positions].astype(np.int32)
            self._cache.extend(sequence, own)
            tokens.append(own)
            sequences.append(sequence)
            positions.append(own_positions)
        ends = np.arange(1, len(numbers) + 1) * num_rows
        wanted = (ends[:, None] - np.arange(num_asked, 0, -1)).ravel()
        return Rows(np.concatenate(tokens), sequences, positions, wanted.astype(np.int64))

    def shorten(self, length: int) -> None:
        """Remove the tokens of every sequence from position `length` on."""
        for sequence in self._sequences.values():
            self._cache.truncate(sequence, length)
