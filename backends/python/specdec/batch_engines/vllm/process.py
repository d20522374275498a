"""Prepare the model's process for vLLM: its environment, and how it starts processes of its own."""

from __future__ import annotations

import locale
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import torch


def prepared_vllm(kv_cache_gib: int) -> Any:
    """Import vLLM, and return the package.

    Environment variables for speed and size that the operator has set are kept. `kv_cache_gib` is
    the size of the KV cache on a CPU; 0 leaves it to vLLM.
    """
    # Triton starts Python without a locale, so that it reads text files as ASCII; vLLM's have more.
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    # Triton embeds Python, so multiprocessing may not know the program to start.
    python = Path(sys.prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    if python.is_file():
        multiprocessing.set_executable(str(python))
    # A fork would copy Triton's threads and locks into vLLM's processes.
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    # The second model runner takes no draft tokens from outside (vLLM issue 36219).
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

    import vllm  # noqa: PLC0415 - after the environment is set
    from vllm.platforms import current_platform  # noqa: PLC0415

    if current_platform.is_cpu():
        _prepare_cpu(kv_cache_gib)
    return vllm


def computed_dtype(dtype: str) -> str:
    """Return the dtype in which vLLM computes here: `dtype`, or float32 on some CPUs.

    A CPU without instructions for bfloat16 or float16 reads prompts five times as fast in float32,
    and generates about as fast. Call it after `prepared_vllm`.
    """
    from vllm.platforms import current_platform  # noqa: PLC0415 - after the environment is set

    return fast_cpu_dtype(dtype) if current_platform.is_cpu() else dtype


def fast_cpu_dtype(dtype: str) -> str:
    """Return `dtype`, or float32 if oneDNN cannot multiply matrices of `dtype` on this CPU."""
    can_multiply = {
        "bfloat16": torch.ops.mkldnn._is_mkldnn_bf16_supported,  # noqa: SLF001 - no public way
        "float16": torch.ops.mkldnn._is_mkldnn_fp16_supported,  # noqa: SLF001
    }
    return dtype if can_multiply.get(dtype, lambda: True)() else "float32"


def _prepare_cpu(kv_cache_gib: int) -> None:
    """Set what makes vLLM's CPU build fast, for the processes that it starts."""
    if kv_cache_gib:
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(kv_cache_gib))
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", cores)
    # Version 0.32.0 cannot load what it has compiled ahead of time.
    os.environ.setdefault("VLLM_USE_AOT_COMPILE", "0")
    # More would leave a pool of idle processes.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # Without Intel's OpenMP, steps that verify draft tokens are slow, as vLLM warns.
    openmp, loaded = Path(sys.prefix) / "lib" / "libiomp5.so", os.environ.get("LD_PRELOAD", "")
    if openmp.is_file() and "libiomp" not in loaded:
        os.environ["LD_PRELOAD"] = f"{openmp}:{loaded}".rstrip(":")
