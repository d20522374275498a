"""Rendering the target as a vLLM engine with our drafters inside (specdec/batch_engines/vllm)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from specdec.builder.description import PairDescription
from specdec.builder.memory import plan_memory
from specdec.builder.rendering.batch_engine import write_batch_engine_model
from specdec.deployment.versions import HEAD

MODEL_PY = '''"""A vLLM engine with our drafters inside; all code is in the package `specdec`."""

from specdec.engine_model.vllm_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''

DEFAULT_MEMORY_SHARE = 0.9
"""vLLM's default of `gpu_memory_utilization`."""
CPU_BLOCK_SIZE = 32
"""Tokens of a KV cache block. vLLM's default of 16 fails in its attention on CPUs (0.32)."""


def write_vllm_model(pair: PairDescription, model: Path, shared: Mapping[str, str]) -> None:
    """Write the target's model folder `model`: config.pbtxt and model.py.

    `shared` are the parameters of drafters and controller that it has in common with `specdec`.
    """
    own = pair.self_speculation
    parameters = {
        "vllm_drafter": "" if own is None else own.mode,
        "vllm_drafter_dir": "" if own is None or own.mode == "mtp" else HEAD,
        "vllm_engine_args": json.dumps(engine_arguments(pair)),
        "kv_cache_gib": str(_kv_cache_gib(pair)) if pair.gpu is None else "0",
        **shared,
    }
    write_batch_engine_model(pair, model, MODEL_PY, "vLLM", parameters)


def engine_arguments(pair: PairDescription) -> dict[str, object]:
    """Return the arguments of vLLM's AsyncEngineArgs that follow from the pair file."""
    arguments: dict[str, object] = {"max_num_batched_tokens": pair.limits.max_num_tokens}
    if pair.gpu is None:
        return arguments | {"block_size": CPU_BLOCK_SIZE}
    target, placement = pair.target, pair.target.placement
    arguments |= {
        "tensor_parallel_size": placement.tensor_parallel,
        "gpu_memory_utilization": target.kv_cache_fraction or _memory_share(pair),
    }
    if target.precision.kv_cache != "auto":
        arguments["kv_cache_dtype"] = target.precision.kv_cache
    return arguments


def _memory_share(pair: PairDescription) -> float:
    """Return vLLM's share of its GPUs' memory: its default, less that of draft models there."""
    taken = 0.0
    for device in plan_memory(pair).devices:
        if device.device in pair.target.placement.devices and device.capacity:
            others = (each.total for each in device.engines if each.engine != pair.target.name)
            taken = max(taken, sum(others) / device.capacity)
    return math.floor(100 * (DEFAULT_MEMORY_SHARE - taken)) / 100


def _kv_cache_gib(pair: PairDescription) -> int:
    """Return the GiB of the KV cache on a CPU, for the expected load."""
    shape, load = pair.target.shape, pair.load
    num_bytes = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * 2
    return max(1, -(-load.num_sequences * load.sequence_len * num_bytes // 2**30))
