"""Pauses and resumes a process with all its descendants."""

from __future__ import annotations

from contextlib import suppress

import psutil


def tree(root: int) -> list[psutil.Process]:
    """Return the process `root` and its descendants, parents before children; [] if it ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    return []


def pause(root: int) -> None:
    """Stop the tree: an idle engine that polls would take a core from the others."""
    for process in tree(root):
        with suppress(psutil.NoSuchProcess):
            process.suspend()


def resume(root: int) -> None:
    """Continue the tree, children first: a parent that wakes must find them running."""
    for process in reversed(tree(root)):
        with suppress(psutil.NoSuchProcess):
            process.resume()
