"""Wait until another thread or process has done something."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 120.0
"""Longest wait in seconds; long, because the machine may be busy with other work."""


def wait_for(condition: Callable[[], Any], limit_s: float = PATIENCE_S) -> Any:
    """Call `condition` every 20 ms until it returns a true value, and return that value.

    Raise AssertionError after `limit_s` seconds. FileNotFoundError counts as a false value.
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
