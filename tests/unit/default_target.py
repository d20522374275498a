"""The shapes of the default target (SmolLM2-135M), and random tensors to fill them."""

from __future__ import annotations

import torch

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 576, 1536, 9, 3, 64, 49152
CPU = torch.device("cpu")


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    """Return normally distributed numbers times `scale`: [*shape] bfloat16 on the CPU.

    The same seed gives the same numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * scale).to(torch.bfloat16)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of a bfloat16 or float32 tensor as integers, to compare them exactly."""
    return tensor.view(torch.int16 if tensor.dtype == torch.bfloat16 else torch.int32)
