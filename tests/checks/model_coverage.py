"""Saves the coverage of a model's process every second, because a stop of the server kills it.

tests/checks/coverage.py has each Python process import this module at its start.
"""

import threading
import time
from pathlib import Path

STUB = b"triton_python_backend_stub"
PERIOD_S = 1.0


def _save_again_and_again() -> None:
    # This module is imported before coverage is complete.
    from coverage import Coverage  # noqa: PLC0415

    while True:
        time.sleep(PERIOD_S)
        if running := Coverage.current():
            running.save()


if STUB in Path("/proc/self/cmdline").read_bytes().split(b"\0")[0]:
    threading.Thread(target=_save_again_and_again, daemon=True).start()
