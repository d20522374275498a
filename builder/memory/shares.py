"""The KV cache of each engine.

TensorRT-LLM takes `kv_cache_free_gpu_mem_fraction` of what is free when an engine allocates its
cache, its weights and buffers being there (`KVCacheManager::calculateMaxNumBlocks`), but at most
`max_tokens_in_paged_kv_cache`. Triton loads models side by side, in no order to rely on, so a
fraction alone would give each engine another cache at each start, and 0.9 of it twice leaves the
second engine nothing. Here the count of tokens divides the memory, and the fraction is just high
enough to reach it even for the engine that loads last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from builder.description import LLMAPI, PairDescription
from builder.memory.plan import DeviceMemory, MemoryPlan

DEFAULT_FRACTION = 0.9
"""TensorRT-LLM's own, where nothing is said (cpp: KvCacheConfig::kDefaultGpuMemFraction)."""

MAX_FRACTION = 0.99
"""TensorRT-LLM refuses 1."""

_HEADROOM = 0.95
"""Of what the load leaves over; the rest absorbs what the estimates miss."""


@dataclass(frozen=True, slots=True)
class KvShare:
    """What one engine's configuration says of its KV cache."""

    engine: str
    fraction: float
    """`kv_cache_free_gpu_mem_fraction`, two decimals."""
    max_tokens: int
    """`max_tokens_in_paged_kv_cache`."""


def kv_shares(pair: PairDescription, plan: MemoryPlan) -> tuple[KvShare, ...]:
    """Give each cache what the load needs, and its part of the rest.

    An engine on several devices has what its fullest one allows, as TensorRT-LLM takes the smallest
    count of blocks over ranks. A `kv_cache_fraction` of the pair file is kept: it then says how
    large the cache is, if engines load in the order of `pair.engines`. So does TensorRT-LLM's own
    for an llmapi engine, which alone knows what its runtime takes besides. Empty without a GPU, and
    where the load does not fit.
    """
    devices = [each for each in plan.devices if each.capacity is not None]
    if not devices or not plan.fits:
        return ()
    default = DEFAULT_FRACTION if pair.engine == LLMAPI else None
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
    """Load the device's engines in turn; the bytes that each cache gets.

    An engine of `fractions` takes that of what is free then; another takes its `max_tokens`, if so
    much is free. Below 0: what is missing for the engine's weights and buffers.
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
    """Bytes of each cache: its load, and of the rest a part in proportion to that."""
    assert device.spare is not None
    wanted = sum(each.kv_cache for each in device.engines)
    rest = int(device.spare * _HEADROOM)
    return {each.engine: each.kv_cache + rest * each.kv_cache // wanted for each in device.engines}


def _fraction(device: DeviceMemory, name: str, tokens: Mapping[str, int]) -> float:
    """What the engine's cache is of what is free there once all others are loaded; 0 elsewhere."""
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
