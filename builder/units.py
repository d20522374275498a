"""Units in which sizes are shown."""

from __future__ import annotations

GIB = 1 << 30
"""Bytes in a GiB."""


def gib(num_bytes: int) -> str:
    """Return a size in GiB, as a number with three digits or with one decimal."""
    size = num_bytes / GIB
    return f"{size:.1f}" if size >= 10 or size == 0 else f"{size:.2f}"
