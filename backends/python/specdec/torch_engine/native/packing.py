"""The form of weight matrices that the compiled products read (products.h)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.torch_engine.native import library

PANEL = 32
"""Columns of a result (rows of the matrix) that are computed together."""

SCALE_GROUP = 64
"""Inputs of a column that share an int8 scale.

With one scale for a whole column, twice as many tokens differ from those of float32: at 57 of 1,984
positions, instead of 30 (default target, activations not quantised).
"""


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix [out, in] in panels of 32 rows; zeros fill the last panel."""

    panels: Tensor
    """bf16 [panels, in / 2, 32, 2]; or uint8 [panels, in / 4, 32, 4], which holds the int8 values
    plus 128."""
    scales: Tensor | None
    """bf16 [panels, ceil(in / SCALE_GROUP), 32] for int8; None for bf16."""

    def pointers(self) -> library.Matrix:
        """Return the matrix in the library's structure; valid while this object lives."""
        scales = None if self.scales is None else self.scales.data_ptr()
        return library.Matrix(self.panels.data_ptr(), scales)


def pack(weight: Tensor, *, is_int8: bool) -> PackedMatrix:
    """Pack a matrix [out, in] bf16, quantised if `is_int8`; `in` must be a multiple of 16."""
    if not is_int8:
        return PackedMatrix(_panels(weight, 2), None)
    values, scales = quantise(weight)
    # The processor multiplies unsigned bytes by signed ones. Flipping the top bit adds 128.
    unsigned = _panels(values, 4).view(torch.uint8).bitwise_xor_(128)
    return PackedMatrix(unsigned, _panels(scales, 1).squeeze(-1))


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise `weight` [out, in]: return int8 [out, in], and scales [out, groups] bf16.

    weight ≈ values * scales, with values from -127 to 127. The largest of the SCALE_GROUP inputs
    sets the scale.
    """
    values, scales = [], []
    for part in weight.split(SCALE_GROUP, dim=1):
        group = part.float()
        scale = (group.abs().amax(dim=1, keepdim=True) / 127).to(torch.bfloat16)
        divisor = torch.where(scale > 0, scale.float(), 1.0)
        values.append((group / divisor).round_().clamp_(-127, 127).to(torch.int8))
        scales.append(scale)
    return torch.cat(values, dim=1), torch.cat(scales, dim=1)


def _panels(weight: Tensor, num_together: int) -> Tensor:
    """Rearrange [out, in] as [panels, in / num_together, 32, num_together]."""
    num_out, num_in = weight.shape
    num_panels = -(-num_out // PANEL)
    padded = weight.new_zeros(num_panels * PANEL, num_in)
    padded[:num_out] = weight
    shape = (num_panels, PANEL, num_in // num_together, num_together)
    return padded.view(shape).transpose(1, 2).contiguous()
