"""The rotary position embedding, in Hugging Face's layout of two halves."""

from __future__ import annotations

import torch
from torch import Tensor


def rotary_tables(
    max_len: int, head_dim: int, theta: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of all positions, float32 [max_len, head_dim].

    The second half of a row repeats the first.
    """
    inv = 1.0 / theta ** (torch.arange(0, head_dim, 2, device=device).float() / head_dim)
    angle = torch.arange(max_len, device=device).float()[:, None] * inv[None]
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x [..., head_dim] with its rotary embedding; `cos` and `sin` broadcast against x."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin
