"""Let a process end with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the signal that this process gets when its parent ends."""


def end_with_parent(parent_pid: int | None = None) -> None:
    """Let the kernel end this process when the thread that started it ends, however it does.

    If that thread belongs to `parent_pid` and has ended already, so does this process; with None it
    is not looked at.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent_pid not in {None, os.getppid()}:
        sys.exit(1)
