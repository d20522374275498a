"""The device of these tests, and which equality it promises."""

import os

import torch

from tests.unit.graph_path import bits

DEVICE = torch.device(os.environ.get("SPECDEC_TEST_DEVICE", "cuda"))
"""`cpu` in a rehearsal (docs/gpu.md), which runs the same code with nothing captured."""

IS_CUDA = DEVICE.type == "cuda"

CPU_TOLERANCE = 1e-4
"""For values of size 1 in float32: a CPU's kernels sum in another order for other shapes."""


def assert_same(left, right, what=""):
    """Fail unless all bits are equal; in a rehearsal, unless the values are close."""
    if IS_CUDA:
        assert torch.equal(bits(left.float()), bits(right.float())), what
    else:
        assert torch.allclose(left, right, rtol=0, atol=CPU_TOLERANCE), what
