"""Products in tiles of one fixed number of rows.

A matrix library picks its kernel, and with it the order of summation, by the shape of the product.
Here the shape is always the same: 64 rows, padded with anything, and more rows are more such
products. Inside one kernel a row's sum does not depend on the row's place or on other rows. Up to
64 rows a pass is bound by reading the weights, so the padding costs next to nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

TILE = 64
"""Rows of every product. More would let larger batches read the weights once, and make a single
stream wait for arithmetic."""


def pad_rows(x: Tensor) -> Tensor:
    """[n, …] → the same with zeros behind, to a multiple of TILE rows."""
    missing = -len(x) % TILE
    return pad(x, (0, 0) * (x.dim() - 1) + (0, missing)) if missing else x


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x [a multiple of TILE, in], weight [out, in] → x Wᵀ in their dtype."""
    if len(x) == TILE:
        return torch.mm(x, weight.t())
    return torch.cat([torch.mm(tile, weight.t()) for tile in x.split(TILE)])


def float32_product(x: Tensor, weight: Tensor) -> Tensor:
    """x [n, in] float32, weight [out, in] → [n, out] float32, unrounded.

    A bf16 weight is multiplied by the two halves of x: bf16, and what its rounding left. Together
    they carry 16 of float32's 24 bits.
    """
    if weight.dtype == torch.float32:
        return product(pad_rows(x), weight)[: len(x)]
    high = x.to(weight.dtype)
    low = (x - high.float()).to(weight.dtype)
    both = torch.cat([_wide(tile, weight) for tile in pad_rows(torch.cat((high, low))).split(TILE)])
    return both[: len(x)] + both[len(x) : 2 * len(x)]


def _wide(tile: Tensor, weight: Tensor) -> Tensor:
    """[TILE, in] bf16 → [TILE, out] float32, as the kernel accumulates."""
    if tile.is_cuda:
        return torch.mm(tile, weight.t(), out_dtype=torch.float32)
    return torch.mm(tile.float(), weight.t().float())
