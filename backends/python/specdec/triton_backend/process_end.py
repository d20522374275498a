"""End a model's process without the destructors that crash Triton's stub."""

import atexit
import os
import sys
from typing import Any

STUB_MODULE = "c_python_backend_utils"
"""Module that Triton's stub provides, so only the process of a Python model has it."""

_kept: list[Any] = []


def keep_until_exit(*metrics: Any) -> None:
    """Keep Triton's metrics, so that no destructor removes them from the server.

    Metrics with the same name and labels are one object in the server, and the first model that
    removes it frees it for all. If a model is loaded again, the new process would then write to
    freed memory (src/metric_family.cc of Triton's core).
    """
    _kept.extend(metrics)


def skip_destructors() -> None:
    """Make this process end after its exit handlers; do nothing outside a Python model.

    When Triton unloads a model, the stub closes its shared memory before it ends the interpreter.
    Response senders that are then destroyed use the closed memory (src/pb_stub.cc, `main`). Exit
    handlers that were registered before this call do not run.
    """
    if STUB_MODULE in sys.modules:
        atexit.register(_end)


def _end() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
