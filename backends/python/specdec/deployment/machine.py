"""Describe this machine's hardware, because measured times hold only on hardware of its kind."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_GPUS = Path("/proc/driver/nvidia/gpus")
"""Folder of NVIDIA's driver, with a subfolder for each GPU that has a file `information`."""


def machine() -> str:
    """Return the processor, the number of cores that this process may use, and the GPUs."""
    gpus = sorted(_read(path).get("Model", "a GPU") for path in _GPUS.glob("*/information"))
    return "; ".join((f"{processor()}, {len(os.sched_getaffinity(0))} cores", *gpus))


def processor() -> str:
    """Return the processor's name, family and model, and whether it has AVX-512 with bf16.

    Virtual machines leave the processor's number out of its name, so family and model are added.
    """
    known = _read(Path("/proc/cpuinfo"))
    if "model name" not in known:
        return platform.processor() or platform.machine()
    bf16 = ", AVX-512 with bf16" if "avx512_bf16" in known.get("flags", "") else ""
    number = f"family {known.get('cpu family', '?')} model {known.get('model', '?')}"
    return f"{known['model name']} ({number}{bf16})"


def _read(path: Path) -> dict[str, str]:
    """Return a file's `name: value` lines, first of each name; empty if it cannot be read."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found
