"""The capture and replay of a function as a CUDA graph; other devices call the function.

No other module captures or replays graphs. A function given here keeps the rules of a capture:

- It reads and writes tensors that were allocated before and live as long as the graph.
- It takes nothing from the host (no tensor made of Python numbers, no CPU tensor) and gives nothing
  back (no `item`, no `nonzero`).
- Its shapes do not depend on values.
- Its temporary tensors come from the graphs' own memory pool. Graphs of one pool may share this
  memory, so nothing that a later pass needs stays in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_capturing = threading.Lock()
"""The lock of captures. PyTorch allows one capture at a time in a process, and a process may load
several engines."""


@dataclass(frozen=True, slots=True)
class GraphPool:
    """Memory and a stream for the graphs of one engine, which never run at the same time."""

    handle: Any
    """The memory pool, as torch.cuda.graph_pool_handle returns it."""
    stream: Any
    """torch.cuda.Stream for all captures, since matrix libraries keep a workspace for each
    stream."""


class StepGraph:
    """A function that can be run again and again on the device, without waiting for it."""

    def __init__(self, function: Callable[[], None], pool: GraphPool | None) -> None:
        """Call `function` once to warm up, then capture it.

        Without a pool it is not captured: every replay calls it.
        """
        self._run = function
        if pool is None:
            return
        stream, device = pool.stream, pool.stream.device
        with _capturing, torch.cuda.device(device):
            # The first call loads kernels and initialises libraries, which a capture forbids.
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                function()
            torch.cuda.current_stream(device).wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Another engine of the process may be serving, and allocates memory on its own thread.
            with torch.cuda.graph(
                graph, pool=pool.handle, stream=stream, capture_error_mode="thread_local"
            ):
                function()
        self._run = graph.replay

    def replay(self) -> None:
        """Run the function once more; on CUDA, queue it on the device's current stream."""
        self._run()


def new_pool(device: torch.device) -> GraphPool | None:
    """Return a pool for the graphs of one engine; None on a device without CUDA graphs."""
    if device.type != "cuda":
        return None
    return GraphPool(torch.cuda.graph_pool_handle(), torch.cuda.Stream(device))
