"""Wait for what another thread or process will do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 120.0
"""The longest wait for anything; the machine may be busy with other work."""


def wait_for(condition: Callable[[], Any], limit_s: float = PATIENCE_S) -> Any:
    """Poll until the condition holds; return its value, or fail after the limit.

    A file that is not there yet counts as a condition that does not hold yet.
    """
    deadline_s = time.monotonic() + limit_s
    while True:
        try:
            value = condition()
        except FileNotFoundError:
            value = None
        if value or time.monotonic() > deadline_s:
            assert value, f"not within {limit_s:g} s"
            return value
        time.sleep(0.02)
