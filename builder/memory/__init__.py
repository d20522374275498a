"""How much memory a pair takes on each device, and which share of it each KV cache gets.

`plan_memory` adds up what each engine keeps on each device; `kv_shares` divides what is left among
the KV caches; `remedies` says what would save how much. Everything is computed from shapes.

Which parts are exact: weights and KV cache (shapes times item sizes). Estimated, and compared with
what TensorRT-LLM has printed for known engines (tests/unit/test_memory.py): activations, the
buffers of runtime and decoder, the CUDA context.
"""

from builder.memory.plan import DeviceMemory, EngineMemory, MemoryPlan, plan_memory
from builder.memory.remedies import Remedy, combination, remedies
from builder.memory.shares import KvShare, kv_shares

__all__ = [
    "DeviceMemory",
    "EngineMemory",
    "KvShare",
    "MemoryPlan",
    "Remedy",
    "combination",
    "kv_shares",
    "plan_memory",
    "remedies",
]
