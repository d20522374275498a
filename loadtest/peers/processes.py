"""Pause and resume a process and all its descendants."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from contextlib import suppress
from pathlib import Path


def tree(root: int) -> list[int]:
    """Return the process ids of `root` and its descendants, parents before children."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # The process may have ended since.
            # The name is in parentheses and may contain anything; the parent's id comes after it.
            fields = path.read_text("utf-8", errors="replace").rpartition(")")[2].split()
            children[int(fields[1])].append(int(path.parent.name))
    found = [root]
    for pid in found:
        found += children[pid]
    return found


def pause(root: int) -> None:
    """Stop the tree: an idle engine that polls would take a core from the others."""
    _signal(tree(root), signal.SIGSTOP)


def resume(root: int) -> None:
    """Continue the tree, children first: a parent that wakes must find them running."""
    _signal(tree(root)[::-1], signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
