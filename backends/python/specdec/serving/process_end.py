"""End a model's process without the destructors that crash Triton's stub."""

import atexit
import os
import sys

STUB_MODULE = "c_python_backend_utils"
"""A module that only the process of a Python model has: Triton's stub brings it."""


def skip_destructors() -> None:
    """Let this process end right after its exit handlers; do nothing outside a Python model.

    When Triton unloads a model, the stub closes its shared memory and then ends the interpreter.
    Response senders that are freed there use the memory that is gone (src/pb_stub.cc, `main`).
    Handlers that were registered before this call do not run.
    """
    if STUB_MODULE in sys.modules:
        atexit.register(_end)


def _end() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
