"""A small KV cache whose keys and values are the tokens themselves, so they can be read back."""

from __future__ import annotations

import numpy as np
import torch

from specdec.token_ids import TokenIds
from specdec.torch_engine.config import ModelConfig
from specdec.torch_engine.layers.kv_cache import CachedSequence, KVCache

BLOCK = 4
CONFIG = ModelConfig(
    vocab_size=256,
    hidden_size=4,
    intermediate_size=4,
    num_layers=2,
    num_heads=2,
    num_kv_heads=2,
    head_dim=2,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position=1024,
    tie_embeddings=True,
    draft_vocab_size=None,
)


def ids(*tokens: int) -> TokenIds:
    """Return token ids [n] int32."""
    return np.asarray(tokens, dtype=np.int32)


def add(cache: KVCache, sequence: CachedSequence, tokens: TokenIds) -> None:
    """Extend a sequence; write each token itself as its keys and values, in every layer."""
    start = sequence.length
    cache.extend(sequence, tokens)
    positions = np.arange(start, sequence.length)
    rows = torch.from_numpy(cache.write_index(sequence, positions).ravel())
    values = torch.from_numpy(np.repeat(tokens, 2 * CONFIG.num_kv_heads)).to(torch.bfloat16)
    for layer in range(CONFIG.num_layers):
        flat = cache.layer(layer).view(-1, CONFIG.head_dim)
        flat.index_copy_(0, rows, values[:, None].expand(-1, CONFIG.head_dim))


def stored(cache: KVCache, sequence: CachedSequence) -> list[int]:
    """Read a sequence's tokens back from its blocks; assert that all keys and values agree."""
    parts = [cache.storage[:, :, block] for block in sequence.blocks]
    if not parts:
        return []
    whole = torch.cat(parts, dim=3)[:, :, :, : sequence.length].float()
    first = whole[0, 0, 0, :, 0]
    assert (whole == first[:, None]).all()
    return first.int().tolist()
