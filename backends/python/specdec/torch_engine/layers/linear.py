"""Matrix products whose rows do not depend on each other.

Verification computes a token in a batch of k + 1 rows, and the result must equal that of the token
computed alone. oneDNN chooses its kernel by shape, and two kinds of shape change the order of
summation: a product with one row, and an inner dimension above 1,024. Both are avoided: `model.py`
never runs fewer than two rows, and this module cuts a long inner dimension into pieces.
"""

from __future__ import annotations

import torch
from torch import Tensor

# The operations that torch.compile uses for packed weights; they have no public Python API.
_mkldnn = torch.ops.mkldnn

MAX_INNER = 1024
"""Largest inner dimension of one product."""


def can_be_packed(weight: Tensor) -> bool:
    """Say whether oneDNN can pack the weight: bf16, on a CPU with AVX-512 or similar."""
    return (
        weight.dtype == torch.bfloat16
        and weight.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
        and bool(_mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001
    )


class Linear:
    """The product x Wᵀ with a weight [out, in], which is packed once for oneDNN if possible."""

    def __init__(self, weight: Tensor) -> None:
        self._num_columns = len(weight)
        self._num_pieces = -(-weight.shape[1] // MAX_INNER)
        self._packed = can_be_packed(weight)
        pieces = [piece.contiguous() for piece in weight.chunk(self._num_pieces, dim=1)]
        if self._packed:
            pieces = [_mkldnn._reorder_linear_weight(piece) for piece in pieces]  # noqa: SLF001
        self._pieces = pieces

    def __call__(self, x: Tensor) -> Tensor:
        """Return x Wᵀ [rows, out] for x [rows, in], both in the weight's dtype.

        Raises ValueError if `in` is above MAX_INNER, because the weight then has several pieces.
        """
        (piece,) = self._pieces
        return self._product(x, piece)

    def summed(self, x: Tensor) -> Tensor:
        """Return x Wᵀ [rows, out] float32 for x [rows, in] in the weight's dtype.

        `in` may have any size.
        """
        out = x.new_zeros(len(x), self._num_columns, dtype=torch.float32)
        self.add_to(out, x)
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """Add x Wᵀ to `residual` [rows, out] float32 in place, piece by piece in a fixed order.

        `x` is [rows, in] in the weight's dtype.
        """
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
