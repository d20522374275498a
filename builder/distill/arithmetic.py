"""The arithmetic that training uses on a device."""

from __future__ import annotations

import torch


def work_dtype(device: torch.device) -> torch.dtype:
    """Return bf16 where the device multiplies it fast, float32 elsewhere.

    Without AVX-512 PyTorch has no bf16 product of its own on a CPU: it takes a hundred times as
    long as one in float32.
    """
    is_fast = device.type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001
    return torch.bfloat16 if is_fast else torch.float32


def autocast(device: torch.device) -> torch.autocast:
    """Return the context of forward passes: bf16 products where `work_dtype` says so."""
    is_enabled = work_dtype(device) == torch.bfloat16
    return torch.autocast(device.type, torch.bfloat16, enabled=is_enabled)
