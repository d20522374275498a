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
from dataclasses import dataclass
from typing import Any

import torch

_capturing = threading.Lock()
"""PyTorch allows one capture at a time in a process, which may load several engines."""


@dataclass(frozen=True, slots=True)
class GraphPool:
    """Memory and a stream for the graphs of one engine, which never run at the same time."""

    handle: Any
    stream: Any
    """torch.cuda.Stream: one for all, since matrix libraries keep a workspace for each."""


class StepGraph:
    """Runs `function` again and again on the device's current stream, without waiting for it."""

    def __init__(self, function: Callable[[], None], pool: GraphPool | None) -> None:
        """Captures it; without a pool, every replay calls it."""
        self._run = function
        if pool is None:
            return
        stream, device = pool.stream, pool.stream.device
        with _capturing, torch.cuda.device(device):
            # The first call loads kernels and lets libraries initialise: not during a capture.
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                function()
            torch.cuda.current_stream(device).wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Other threads of the process may allocate meanwhile: another engine that is serving.
            with torch.cuda.graph(
                graph, pool=pool.handle, stream=stream, capture_error_mode="thread_local"
            ):
                function()
        self._run = graph.replay

    def replay(self) -> None:
        self._run()


def new_pool(device: torch.device) -> GraphPool | None:
    """None where nothing is captured."""
    if device.type != "cuda":
        return None
    return GraphPool(torch.cuda.graph_pool_handle(), torch.cuda.Stream(device))
