"""The parameters and bytes that a pass reads; `lab` and `gpu` compare its time with them."""

from __future__ import annotations

import torch

from specdec.torch_engine.config import ModelConfig


def num_layer_parameters(config: ModelConfig) -> int:
    """Count the elements of all matrices in the layers; a row multiplies each of them once."""
    hidden = config.hidden_size
    qkv = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim * hidden
    output = config.num_heads * config.head_dim * hidden
    mlp = 3 * config.intermediate_size * hidden
    return config.num_layers * (qkv + output + mlp)


def num_weight_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Count the bytes of weights that a pass reads: every layer and the head, once."""
    head = (config.draft_vocab_size or config.vocab_size) * config.hidden_size
    return (num_layer_parameters(config) + head) * dtype.itemsize


def num_cache_bytes(config: ModelConfig, dtype: torch.dtype, num_tokens: int) -> int:
    """Count the bytes of keys and values that a pass reads for `num_tokens` of context."""
    per_layer = 2 * config.num_kv_heads * config.head_dim * dtype.itemsize
    return config.num_layers * per_layer * num_tokens
