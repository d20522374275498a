"""The device of these tests, and how close values must be on it."""

import os

import torch

from tests.unit.torch_engine.gpu.graph_path import bits

DEVICE = torch.device(os.environ.get("SPECDEC_TEST_DEVICE", "cuda"))
"""Device from SPECDEC_TEST_DEVICE, else CUDA. A rehearsal (docs/gpu.md) sets `cpu`: it runs the
same code without capturing graphs."""

IS_CUDA = DEVICE.type == "cuda"

CPU_TOLERANCE = 1e-4
"""Largest difference in a rehearsal, for float32 values of about 1. CPU kernels add in an order
that depends on the shape."""


def assert_same(left, right, what=""):
    """Raise AssertionError with `what` unless all bits are equal.

    In a rehearsal the values must only be within CPU_TOLERANCE.
    """
    if IS_CUDA:
        assert torch.equal(bits(left.float()), bits(right.float())), what
    else:
        assert torch.allclose(left, right, rtol=0, atol=CPU_TOLERANCE), what
