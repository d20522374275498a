"""The KV cache of each engine: TensorRT-LLM takes a fraction of what is free at that moment."""

from __future__ import annotations

import math
from dataclasses import dataclass

from builder.description import PairDescription
from builder.memory.plan import DeviceMemory, EngineMemory, MemoryPlan

DEFAULT_FRACTION = 0.9
"""TensorRT-LLM's own, where nothing is said (cpp: KvCacheConfig::kDefaultGpuMemFraction)."""

_HEADROOM = 0.95
"""Of what is left for the caches; the rest absorbs what the estimates miss."""


@dataclass(frozen=True, slots=True)
class KvShare:
    """What one engine's configuration says of its KV cache."""

    engine: str
    fraction: float
    """`kv_cache_free_gpu_mem_fraction`: of what is free when this engine allocates its cache, with
    the engines before it loaded."""
    max_tokens: int
    """`max_tokens_in_paged_kv_cache`: the smaller of both limits holds, so an engine that is loaded
    out of turn cannot take another's share."""


def kv_shares(pair: PairDescription, plan: MemoryPlan) -> tuple[KvShare, ...]:
    """Divide what is free among the caches, in proportion to what the load needs of each.

    Engines are loaded in the order of `pair.engines`. Ranks of one engine have one fraction, that
    of their fullest device; TensorRT-LLM takes the smallest count of blocks over ranks. A fraction
    that the pair file sets is kept. Empty where there is no GPU, or no room for any cache.
    """
    fractions: dict[str, float] = {}
    tokens: dict[str, int] = {}
    for device in plan.devices:
        if device.capacity is None:
            continue
        for engine, budget, free in _budgets(device):
            if budget <= 0:
                return ()
            name = engine.engine
            fractions[name] = min(_rounded(budget / free), fractions.get(name, 1.0))
            count = budget // engine.kv_bytes_per_token
            tokens[name] = min(count, tokens.get(name, count))
    return tuple(
        KvShare(
            each.name,
            fractions[each.name] if each.kv_cache_fraction is None else each.kv_cache_fraction,
            tokens[each.name],
        )
        for each in pair.engines
        if each.name in fractions
    )


def fractions_on(device: DeviceMemory) -> dict[str, float]:
    """The computed fraction of each engine on this device; 0 where there is no room."""
    return {
        engine.engine: _rounded(budget / free) if budget > 0 else 0.0
        for engine, budget, free in _budgets(device)
    }


def caches_by_fraction(
    device: DeviceMemory, fractions: dict[str, float]
) -> list[tuple[EngineMemory, int]]:
    """Load the device's engines in turn with these fractions; the bytes that each cache gets.

    Below 0: what is missing for the engine's weights and buffers.
    """
    assert device.capacity is not None
    free, found = device.capacity, []
    for engine in device.engines:
        free -= engine.fixed
        cache = int(free * fractions.get(engine.engine, DEFAULT_FRACTION)) if free > 0 else free
        found.append((engine, cache))
        free -= max(cache, 0)
    return found


def _rounded(fraction: float) -> float:
    """Down to three digits that count: a small model's share may be a thousandth."""
    scale = 10 ** (2 - math.floor(math.log10(fraction)))
    return math.floor(fraction * scale) / scale


def _budgets(device: DeviceMemory) -> list[tuple[EngineMemory, int, int]]:
    """(engine, bytes of its cache, bytes free when it allocates them), in loading order."""
    assert device.capacity is not None
    room = int((device.capacity - sum(each.fixed for each in device.engines)) * _HEADROOM)
    wanted = sum(each.kv_cache for each in device.engines)
    free, found = device.capacity, []
    for engine in device.engines:
        budget = room * engine.kv_cache // max(wanted, 1)
        free -= engine.fixed
        found.append((engine, budget, free))
        free -= budget
    return found
