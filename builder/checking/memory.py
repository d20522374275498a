"""Does it fit, by how much, and what would help? Are the KV caches' shares ones that work?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from builder.checking.findings import Finding, error
from builder.memory import DeviceMemory, KvShare, MemoryPlan, Remedy
from builder.memory.shares import caches_by_fraction, fractions_on

GIB = 1 << 30
NUM_REMEDIES = 6


def check_memory(
    plan: MemoryPlan, shares: Sequence[KvShare], found: Sequence[Remedy]
) -> Iterator[Finding]:
    """Each device that is too small, and each fraction that starves an engine."""
    for device in plan.devices:
        if not device.fits:
            yield _too_small(device, found)
        elif device.capacity is not None:
            yield from _check_fractions(device, shares)


def _too_small(device: DeviceMemory, found: Sequence[Remedy]) -> Finding:
    assert device.capacity is not None
    assert device.spare is not None
    parts = "; ".join(
        f"{each.engine}: {_gib(each.weights)} weights, {_gib(each.kv_cache)} KV cache, "
        f"{_gib(each.activations + each.buffers + each.context)} activations and buffers"
        for each in device.engines
    )
    helpful = sorted(found, key=lambda each: not each.fits)[:NUM_REMEDIES]
    return error(
        "memory",
        f"{device.name} needs {_gib(device.needed)} and has {_gib(device.capacity)}: "
        f"{_gib(-device.spare)} too much ({parts})",
        "; ".join(
            f"{each.what} saves {_gib(each.saved)}{' and fits' if each.fits else ''}"
            for each in helpful
        )
        or "use a larger GPU",
    )


def _check_fractions(device: DeviceMemory, shares: Sequence[KvShare]) -> Iterator[Finding]:
    """Only fractions that the file sets can be wrong; computed ones are right by construction."""
    if not any(each.fraction is not None for each in device.engines):
        return
    fractions = {each.engine: each.fraction for each in shares}
    before = ""
    computed = ", ".join(f"{name} {value}" for name, value in fractions_on(device).items())
    for engine, cache in caches_by_fraction(device, fractions):
        if cache < 0:
            yield error(
                "kv_fraction",
                f"{device.name}: {before}leaves {_gib(max(0, engine.fixed + cache))} for "
                f"{engine.engine}, "
                f"whose weights and buffers take {_gib(engine.fixed)}; a fraction is of what is "
                "free when an engine loads, and 0.9 of it twice does not fit",
                f"leave kv_cache_fraction out, and the shares are computed: {computed}",
            )
            return
        if cache < engine.kv_cache:
            yield error(
                "kv_fraction",
                f"{device.name}: kv_cache_fraction = {fractions[engine.engine]} gives "
                f"{engine.engine} a KV "
                f"cache of {_gib(cache)}, and the load needs {_gib(engine.kv_cache)}",
                f"leave kv_cache_fraction out, and the shares are computed: {computed}",
            )
        before = f"the KV cache of {engine.engine} (fraction {fractions[engine.engine]}) "


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f} GiB"
