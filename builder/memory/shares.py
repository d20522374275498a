"""Dividing the memory of a device among the KV caches of its engines.

When an engine allocates its KV cache, its weights and buffers are already there. TensorRT-LLM then
takes the share `kv_cache_free_gpu_mem_fraction` of the free memory, but at most
`max_tokens_in_paged_kv_cache` tokens (`KVCacheManager::calculateMaxNumBlocks`).

Triton loads models at the same time and in no fixed order. With a fraction alone, cache sizes would
differ from start to start, and two engines with 0.9 would leave the second too little. So here the
number of tokens divides the memory. The fraction is just high enough to reach that number even for
the engine that loads last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from specdec.builder.description import LLMAPI, LLMAPI_DRAFTS, PairDescription
from specdec.builder.memory.plan import DeviceMemory, MemoryPlan

DEFAULT_FRACTION = 0.9
"""TensorRT-LLM's default fraction (KvCacheConfig::kDefaultGpuMemFraction in its C++ code)."""

MAX_FRACTION = 0.99
"""Largest fraction to write; TensorRT-LLM refuses 1."""

_HEADROOM = 0.95
"""Share of the spare memory that is divided; the rest allows for errors of the estimates."""


@dataclass(frozen=True, slots=True)
class KvShare:
    """The KV cache settings of one engine."""

    engine: str
    """Name of the engine."""
    fraction: float
    """Value of `kv_cache_free_gpu_mem_fraction`, rounded up to two decimals if computed."""
    max_tokens: int
    """Value of `max_tokens_in_paged_kv_cache`, in tokens."""


def kv_shares(pair: PairDescription, plan: MemoryPlan) -> tuple[KvShare, ...]:
    """Give each KV cache what the load needs, and a proportional part of the rest.

    - An engine on several devices gets what the fullest of them allows, because TensorRT-LLM takes
      the smallest number of blocks over all ranks.
    - A `kv_cache_fraction` of the pair file is kept. The cache size then follows from it, assuming
      that engines load in the order of `pair.engines`.
    - An llmapi engine otherwise gets TensorRT-LLM's default fraction, because only its runtime
      knows what else it needs.

    Empty without a GPU, and if the load does not fit.
    """
    devices = [each for each in plan.devices if each.capacity is not None]
    if not devices or not plan.fits:
        return ()
    default = DEFAULT_FRACTION if pair.engine in (LLMAPI, LLMAPI_DRAFTS) else None
    given = {each.engine: each.fraction or default for device in devices for each in device.engines}
    tokens: dict[str, int] = {}
    for device in devices:
        for name, budget in _budgets(device).items():
            _keep_least(tokens, name, budget // _bytes_per_token(device)[name])
    fractions = {name: fraction for name, fraction in given.items() if fraction is not None}
    by_fraction: dict[str, int] = {}
    for device in devices:
        for name, cache in caches_in_turn(device, fractions, tokens).items():
            if name in fractions:
                _keep_least(by_fraction, name, max(0, cache) // _bytes_per_token(device)[name])
    tokens |= by_fraction
    for name in given:
        fractions.setdefault(name, max(_fraction(device, name, tokens) for device in devices))
    names = [engine.name for engine in pair.engines if engine.name in given]
    return tuple(KvShare(name, fractions[name], tokens[name]) for name in names)


def caches_in_turn(
    device: DeviceMemory, fractions: Mapping[str, float], max_tokens: Mapping[str, int]
) -> dict[str, int]:
    """Return the bytes of each KV cache if the device's engines load one after another.

    An engine in `fractions` takes that share of the memory free at that time. Every other engine
    takes up to its `max_tokens`. A negative value is what its weights and buffers lack.
    """
    assert device.capacity is not None
    free, found = device.capacity, {}
    for each in device.engines:
        free -= each.fixed
        if each.engine in fractions:
            cache = int(free * fractions[each.engine])
        else:
            cache = min(int(free * MAX_FRACTION), max_tokens[each.engine] * each.kv_bytes_per_token)
        found[each.engine] = cache if free > 0 else free
        free -= max(found[each.engine], 0)
    return found


def _budgets(device: DeviceMemory) -> dict[str, int]:
    """Return the bytes of each cache: those for its load, and a proportional part of the rest."""
    assert device.spare is not None
    wanted = sum(each.kv_cache for each in device.engines)
    rest = int(device.spare * _HEADROOM)
    return {each.engine: each.kv_cache + rest * each.kv_cache // wanted for each in device.engines}


def _fraction(device: DeviceMemory, name: str, tokens: Mapping[str, int]) -> float:
    """Return the cache as a share of the memory free after all other engines have loaded.

    0 if the engine does not run on the device.
    """
    assert device.capacity is not None
    size = _bytes_per_token(device)
    if name not in size:
        return 0.0
    free = device.capacity - sum(each.fixed for each in device.engines)
    free -= sum(tokens[other] * per_token for other, per_token in size.items() if other != name)
    share = tokens[name] * size[name] / free if free > 0 else 1.0
    return min(MAX_FRACTION, math.ceil(100 * share) / 100)


def _bytes_per_token(device: DeviceMemory) -> dict[str, int]:
    return {each.engine: each.kv_bytes_per_token for each in device.engines}


def _keep_least(counts: dict[str, int], name: str, count: int) -> None:
    counts[name] = min(count, counts.get(name, count))
