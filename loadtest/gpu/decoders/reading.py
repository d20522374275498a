"""A kernel that reads a tensor once, to measure the bandwidth that a pass cannot exceed."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 8192
"""Elements that one program reads: enough to make the time of its single write negligible."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _sum_block(source, sums, num_elements, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
    program = tl.program_id(0).to(tl.int64)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + offsets, mask=offsets < num_elements, other=0.0)
    tl.store(sums + program, tl.sum(values, axis=0))


def sums_of_blocks(source: torch.Tensor) -> torch.Tensor:
    """Return the sum of each block: source [n] float32 on CUDA → [⌈n / BLOCK⌉] float32."""
    num_blocks = -(-source.numel() // BLOCK)
    sums = torch.empty(num_blocks, device=source.device)
    _sum_block[(num_blocks,)](source, sums, source.numel(), BLOCK=BLOCK, num_warps=8)
    return sums
