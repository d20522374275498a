"""Checks of the memory: does each device hold its engines, and do the KV cache shares work?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specdec.builder.checking.findings import Finding, error
from specdec.builder.description import PairDescription
from specdec.builder.memory import DeviceMemory, KvShare, MemoryPlan, Remedy, combination
from specdec.builder.memory.shares import caches_in_turn
from specdec.builder.units import gib

NUM_REMEDIES = 3
"""Number of remedies in the message; the report has all."""


def check_memory(
    pair: PairDescription, plan: MemoryPlan, shares: Sequence[KvShare], found: Sequence[Remedy]
) -> Iterator[Finding]:
    """Check that each device holds its engines and that fractions leave enough for each engine.

    `found` are the remedies to recommend.
    """
    for device in plan.devices:
        if not device.fits:
            yield _too_small(device, found, combination(pair))
        elif device.capacity is not None:
            yield from _check_fractions(device, shares)


def _too_small(
    device: DeviceMemory, found: Sequence[Remedy], together: Sequence[Remedy]
) -> Finding:
    assert device.capacity is not None
    assert device.spare is not None
    parts = "; ".join(
        f"{each.engine}: {gib(each.weights)} GiB weights, {gib(each.kv_cache)} GiB KV cache, "
        f"{gib(each.activations + each.buffers + each.context)} GiB activations and buffers"
        for each in device.engines
    )
    helpful = sorted(found, key=lambda each: not each.fits)[:NUM_REMEDIES]
    steps = [
        f"{each.what} saves {gib(each.saved)} GiB{' and fits' if each.fits else ''}"
        for each in helpful
    ]
    if together and not any(each.fits for each in helpful):
        steps.append(f"together these fit: {' and '.join(each.what for each in together)}")
    return error(
        "memory",
        f"{device.name} needs {gib(device.needed)} GiB and has {gib(device.capacity)} GiB: "
        f"{gib(-device.spare)} GiB too much ({parts})",
        "; ".join(steps) or "use a larger GPU",
    )


def _check_fractions(device: DeviceMemory, shares: Sequence[KvShare]) -> Iterator[Finding]:
    """Check the fractions that the pair file sets; computed shares always hold the load."""
    fractions = {each.engine: each.fraction for each in device.engines if each.fraction is not None}
    if not fractions:
        return
    remedy = "leave kv_cache_fraction out: each cache then gets what the load needs and a share of "
    remedy += "the rest"
    caches = caches_in_turn(device, fractions, {each.engine: each.max_tokens for each in shares})
    before = ""
    for engine in device.engines:
        cache, fraction = caches[engine.engine], fractions.get(engine.engine)
        if cache < 0:
            yield error(
                "kv_fraction",
                f"{device.name}: {before}leaves {gib(max(0, engine.fixed + cache))} GiB for "
                f"{engine.engine}, whose weights and buffers take {gib(engine.fixed)} GiB; a "
                "fraction applies to what is free when an engine loads, so 0.9 twice does not fit",
                remedy,
            )
            return
        if cache < engine.kv_cache:
            why = before if fraction is None else f"kv_cache_fraction = {fraction} "
            yield error(
                "kv_fraction",
                f"{device.name}: {why}gives {engine.engine} a KV cache of {gib(cache)} GiB, and "
                f"the load needs {gib(engine.kv_cache)} GiB",
                remedy,
            )
        if fraction is not None:
            before = f"the KV cache of {engine.engine} (fraction {fraction}) "
