"""The one place that knows of CUDA graphs: a function over static buffers, captured or called.

The rules of a capture, which every function given here keeps: it reads and writes tensors that
were allocated before and live as long as the graph; it takes nothing from the host (no tensor
made of Python numbers, no CPU tensor) and gives nothing back (no `item`, no `nonzero`); its shapes
depend on no value; what it allocates in between comes from the graphs' own pool. Graphs of one
pool may use the same memory in between, so nothing that a later pass needs stays in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

NUM_WARM_UPS = 2
"""Calls before a capture: libraries initialise themselves and choose kernels in the first."""

_capturing = threading.Lock()
"""PyTorch allows one capture at a time in a process, which may load several engines."""


class StepGraph:
    """Runs `function` again and again on the device's current stream, without waiting for it."""

    def __init__(self, function: Callable[[], None], device: torch.device, pool: Any) -> None:
        """`pool`: of new_pool, shared by graphs that never run at the same time."""
        self._run = function
        if device.type != "cuda":
            return
        stream = torch.cuda.Stream(device)
        with _capturing, torch.cuda.device(device):
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for _ in range(NUM_WARM_UPS):
                    function()
            torch.cuda.current_stream(device).wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads of the process may allocate meanwhile: another engine that is serving.
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                function()
        self._run = graph.replay

    def replay(self) -> None:
        self._run()


def new_pool(device: torch.device) -> Any:
    """A memory pool for the graphs of one engine; None where nothing is captured."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None
