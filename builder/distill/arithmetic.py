"""The device that training computes on, and the number types there."""

from __future__ import annotations

import torch


def training_device() -> torch.device:
    """Return CUDA if there is such a device, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def work_dtype(device: torch.device) -> torch.dtype:
    """Return bf16 where the device multiplies it fast, float32 elsewhere.

    On a CPU without AVX-512, PyTorch has no fast bf16 product: one takes a hundred times as long as
    in float32.
    """
    is_fast = device.type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001
    return torch.bfloat16 if is_fast else torch.float32


def autocast(device: torch.device) -> torch.autocast:
    """Return the context for forward passes, whose products are bf16 if `work_dtype` is."""
    is_enabled = work_dtype(device) == torch.bfloat16
    return torch.autocast(device.type, torch.bfloat16, enabled=is_enabled)
