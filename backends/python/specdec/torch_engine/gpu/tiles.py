"""Matrix products in tiles with a fixed number of rows.

A matrix library chooses its kernel, and with it the order of summation, by the shape of the
product. Here the shape is always the same: 64 rows. Fewer rows are padded, and more rows are split
into several products. Within one kernel a row's sum depends neither on the row's index nor on other
rows. A pass of up to 64 rows is bound by reading the weights, so the padding costs next to nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

TILE = 64
"""Rows of every product. Larger tiles would let large batches read the weights less often, but make
a single stream wait for the arithmetic of padding."""


def pad_rows(x: Tensor) -> Tensor:
    """Return `x` [n, …] with rows of zeros added at the end, up to a multiple of TILE rows."""
    missing = -len(x) % TILE
    return pad(x, (0, 0) * (x.dim() - 1) + (0, missing)) if missing else x


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x Wᵀ: [rows, out] in the dtype of both.

    `x` is [rows, in], with rows a multiple of TILE; `weight` is [out, in].
    """
    if len(x) == TILE:
        return torch.mm(x, weight.t())
    return torch.cat([torch.mm(tile, weight.t()) for tile in x.split(TILE)])


def float32_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x Wᵀ: [n, out] float32, not rounded to the weight's dtype.

    `x` is [n, in] float32; `weight` is [out, in]. A bf16 weight is multiplied by two bf16 parts of
    x: x rounded, and the remainder. Together they carry 16 of float32's 24 bits.
    """
    if weight.dtype == torch.float32:
        return product(pad_rows(x), weight)[: len(x)]
    high = x.to(weight.dtype)
    low = (x - high.float()).to(weight.dtype)
    both = torch.cat([_wide(tile, weight) for tile in pad_rows(torch.cat((high, low))).split(TILE)])
    return both[: len(x)] + both[len(x) : 2 * len(x)]


def _wide(tile: Tensor, weight: Tensor) -> Tensor:
    """Return tile Wᵀ [TILE, out] float32 as the kernel accumulates it; `tile` [TILE, in] bf16."""
    if tile.is_cuda:
        return torch.mm(tile, weight.t(), out_dtype=torch.float32)
    return torch.mm(tile.float(), weight.t().float())
