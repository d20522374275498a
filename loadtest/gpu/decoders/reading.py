"""A kernel that reads a tensor once: the bandwidth that a pass cannot exceed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 8192
"""Elements that one program reads; large enough that its single write does not count."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _sum_block(source, sums, num_elements, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    program = tl.program_id(0).to(tl.int64)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + offsets, mask=offsets < num_elements, other=0.0)
    tl.store(sums + program, tl.sum(values, axis=0))


def sums_of_blocks(source: torch.Tensor) -> torch.Tensor:
    """source [n] float32 on a CUDA device → [⌈n / BLOCK⌉] float32: the sum of each block."""
    num_blocks = -(-source.numel() // BLOCK)
    sums = torch.empty(num_blocks, device=source.device)
    _sum_block[(num_blocks,)](source, sums, source.numel(), BLOCK=BLOCK, num_warps=8)
    return sums
