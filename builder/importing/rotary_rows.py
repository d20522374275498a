"""The order of a projection's rows for rotary embedding, which differs between formats."""

from __future__ import annotations

from torch import Tensor


def in_halves(rows: Tensor, num_heads: int) -> Tensor:
    """Reorder projection rows [..., size, dim] for rotary embedding in halves.

    Meta, llama2.c and GGUF rotate neighbouring rows of a head; transformers rotates its two halves.
    Source: permute() in transformers' convert_llama_weights_to_hf.py.
    """
    *stack, size, dim = rows.shape
    pairs = rows.reshape(*stack, num_heads, size // num_heads // 2, 2, dim)
    return pairs.transpose(-3, -2).reshape(rows.shape)
