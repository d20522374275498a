"""Matrix products whose rows do not depend on each other.

oneDNN picks its kernel by shape, and two of its choices change the order of summation: a product
with one row, and an inner dimension above 1,024. Verification compares a token computed in a
batch of k + 1 rows with the same token computed alone, so both are avoided rather than hoped
for: `model.py` never runs fewer than two rows, and a long inner dimension is cut into pieces here.
"""

from __future__ import annotations

import torch
from torch import Tensor

# What torch.compile calls for packed weights; the only way to them from Python.
_mkldnn = torch.ops.mkldnn

MAX_INNER = 1024
"""Largest inner dimension summed inside one product."""


def can_be_packed(weight: Tensor) -> bool:
    """Whether oneDNN packs it: bf16 on a CPU with instructions for it (AVX-512, say)."""
    return (
        weight.dtype == torch.bfloat16
        and weight.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
        and bool(_mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001
    )


class Linear:
    """y = x Wᵀ for a weight [out, in]; packed once for oneDNN if it can be."""

    def __init__(self, weight: Tensor) -> None:
        self._num_columns = len(weight)
        self._num_pieces = -(-weight.shape[1] // MAX_INNER)
        self._packed = can_be_packed(weight)
        pieces = [piece.contiguous() for piece in weight.chunk(self._num_pieces, dim=1)]
        if self._packed:
            pieces = [_mkldnn._reorder_linear_weight(piece) for piece in pieces]  # noqa: SLF001
        self._pieces = pieces

    def __call__(self, x: Tensor) -> Tensor:
        """x [rows, in] → [rows, out], both of the weight's dtype; for weights of a single piece."""
        (piece,) = self._pieces
        return self._product(x, piece)

    def summed(self, x: Tensor) -> Tensor:
        """x [rows, in] → [rows, out] float32; for weights of any number of pieces."""
        out = x.new_zeros(len(x), self._num_columns, dtype=torch.float32)
        self.add_to(out, x)
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """residual [rows, out] float32 += x Wᵀ, piece by piece in a fixed order."""
        if self._num_pieces == 1:
            residual.add_(self._product(x, self._pieces[0]))
            return
        for piece, columns in zip(self._pieces, x.chunk(self._num_pieces, dim=1), strict=True):
            residual.add_(self._product(columns, piece))

    def _product(self, x: Tensor, weight: Tensor) -> Tensor:
        if self._packed:
            product: Tensor = _mkldnn._linear_pointwise(x, weight, None, "none", [], "")  # noqa: SLF001
            return product
        return torch.nn.functional.linear(x, weight)
