"""Times on a device, and the speed of the device itself: bandwidth and matrix products."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

NUM_BATCHES = 5
"""Timed batches of calls, after one for warming up; the result is their median."""


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """The best speeds measured on the device."""

    read_bytes_per_s: float
    """Bandwidth of a kernel that only reads; byte limits use this one."""
    copy_bytes_per_s: float
    """Bandwidth of a copy, bytes read and bytes written together."""
    flops_per_s: float
    """Floating-point operations per second of a large matrix product; an addition counts as one."""


def measure_device(device: torch.device, num_bytes: int, matrix_size: int) -> DeviceSpeed:
    """Measure the speed of reading and copying `num_bytes`, and of a product of bf16 matrices.

    The matrices have `matrix_size` rows and columns. Of several ways to read, the fastest counts.
    """
    source = torch.ones(num_bytes // 4, device=device)
    copy_us = _copy_us(source)
    read_us = min(median_us(device, read, 3) for read in _reads(source))
    size = (matrix_size, matrix_size)
    left, right = (torch.randn(size, device=device, dtype=torch.bfloat16) for _ in range(2))
    product_us = median_us(device, lambda: torch.mm(left, right), 3)
    return DeviceSpeed(
        read_bytes_per_s=source.nbytes * 1e6 / read_us,
        copy_bytes_per_s=2 * source.nbytes * 1e6 / copy_us,
        flops_per_s=2 * matrix_size**3 * 1e6 / product_us,
    )


def _copy_us(source: torch.Tensor) -> float:
    target = torch.empty_like(source)
    return median_us(source.device, lambda: target.copy_(source), 3)


def _reads(source: torch.Tensor) -> list[Callable[[], object]]:
    """Return ways to read a tensor once and write next to nothing."""
    if not source.is_cuda:
        return [source.sum]
    try:
        from specdec.loadtest.gpu.decoders.reading import sums_of_blocks  # noqa: PLC0415  needs CUDA

        sums_of_blocks(source)
    except Exception as error:  # noqa: BLE001  a compiler that fails leaves PyTorch's own kernel
        print(f"the reading kernel does not run, PyTorch's sum does: {error}", flush=True)
        return [source.sum]
    return [source.sum, lambda: sums_of_blocks(source)]


def median_us(device: torch.device, run: Callable[[], object], num_calls: int) -> float:
    """Return microseconds per call by the host's clock: the median over batches of `num_calls`."""
    batches = []
    for _ in range(1 + NUM_BATCHES):
        wait(device)
        start_s = time.perf_counter()
        for _ in range(num_calls):
            run()
        wait(device)
        batches.append((time.perf_counter() - start_s) / num_calls * 1e6)
    return statistics.median(batches[1:])


def wait(device: torch.device) -> None:
    """Wait until the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
