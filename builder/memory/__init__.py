"""Planning a pair's memory: what each device must hold, and how large each KV cache is.

- `plan_memory` adds up the memory of each engine on each device.
- `kv_shares` divides the rest among the KV caches.
- `remedies` lists changes that save memory, with the bytes saved.

All of it is computed from shapes. Weights and KV cache are exact (shapes times item sizes).
Activations, the buffers of runtime and decoder, and the CUDA context are estimates. They were
compared with what TensorRT-LLM printed for known engines
(tests/unit/builder/memory/test_memory.py).
"""

from specdec.builder.memory.plan import DeviceMemory, EngineMemory, MemoryPlan, plan_memory
from specdec.builder.memory.remedies import Remedy, combination, remedies
from specdec.builder.memory.shares import KvShare, kv_shares

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
