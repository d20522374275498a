"""What this machine computes with: times measured on another one say little."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_GPUS = Path("/proc/driver/nvidia/gpus")
"""Where NVIDIA's driver describes each GPU in a file `information`."""


def machine() -> str:
    """Processor, the cores that may be used, and GPUs, in words."""
    gpus = sorted(_read(path).get("Model", "a GPU") for path in _GPUS.glob("*/information"))
    return "; ".join((f"{processor()}, {len(os.sched_getaffinity(0))} cores", *gpus))


def processor() -> str:
    """With its family and model: virtual machines leave the name's number out."""
    known = _read(Path("/proc/cpuinfo"))
    if "model name" not in known:
        return platform.processor() or platform.machine()
    bf16 = ", AVX-512 with bf16" if "avx512_bf16" in known.get("flags", "") else ""
    number = f"family {known.get('cpu family', '?')} model {known.get('model', '?')}"
    return f"{known['model name']} ({number}{bf16})"


def _read(path: Path) -> dict[str, str]:
    """`name: value` lines, the first of each name; empty where there is no such file."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found
