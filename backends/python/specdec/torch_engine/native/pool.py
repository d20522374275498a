"""The threads on which the compiled library computes."""

from __future__ import annotations

import functools
import time

import numpy as np
import numpy.typing as npt
import torch

from specdec.errors import ConfigurationError
from specdec.torch_engine.native import library


@functools.cache
def _default_num_threads() -> int:
    """Return the number of threads that PyTorch had before there was a pool."""
    return torch.get_num_threads()


def threads(num_threads: int) -> int:
    """Return the pool of `num_threads` threads (0: PyTorch's choice), a pointer of the library.

    Models of one process that ask for the same number share a pool. PyTorch keeps one thread,
    because two sets of threads would compete for the same cores. Raises ConfigurationError if the
    system gives no threads.
    """
    default = _default_num_threads()
    return _threads(num_threads or default)


@functools.cache
def _threads(num_threads: int) -> int:
    torch.set_num_threads(1)
    pool: int | None = library.load().pool_new(num_threads)
    if not pool:
        raise ConfigurationError(f"the system gives no {num_threads} threads")
    return pool


def read_speed(num_bytes: int) -> float:
    """Return the bytes per second at which all threads together read `num_bytes` of memory."""
    memory = _memory(num_bytes)
    sums = np.zeros(64, dtype=np.int32)
    start = time.perf_counter()
    library.load().read_memory(threads(0), memory.ctypes.data, num_bytes, sums.ctypes.data)
    return num_bytes / (time.perf_counter() - start)


@functools.cache
def _memory(num_bytes: int) -> npt.NDArray[np.uint8]:
    """Return memory that was written once.

    Pages that were never written would all be the same page of zeros.
    """
    return np.ones(num_bytes, dtype=np.uint8)
