"""The memory plan: what each engine of a pair needs on each device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec.builder.description import (
    LLMAPI,
    TENSORRTLLM,
    EngineDescription,
    PairDescription,
)
from specdec.builder.memory.buffers import (
    CONTEXT_BYTES,
    activation_bytes,
    buffer_bytes,
    kv_bytes_per_token,
    num_kv_tokens,
)
from specdec.builder.memory.weights import head_bytes, weight_bytes

USABLE_SHARE = 0.97
"""Usable share of the memory that nvidia-smi shows. CUDA reports 79.1 of an 80 GB device's 79.6
GiB, and a server cannot fill a pool to the last byte."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """The memory of one engine on one device, in bytes."""

    engine: str
    weights: int
    """Weights, including those of an EAGLE-3 or Medusa head."""
    activations: int
    buffers: int
    context: int
    kv_cache: int
    """KV cache for the pair's load."""
    kv_bytes_per_token: int
    fraction: float | None
    """`kv_cache_fraction` of the pair file; None if it is to be computed."""

    @property
    def fixed(self) -> int:
        """Bytes that are in use when the KV cache is allocated: everything but the cache."""
        return self.weights + self.activations + self.buffers + self.context

    @property
    def total(self) -> int:
        return self.fixed + self.kv_cache


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of one device and of the engines on it, in the order of the pair."""

    device: int | None
    """Index of a GPU; None for the host."""
    capacity: int | None
    """Bytes that may be used; None if not known, as for the host."""
    engines: tuple[EngineMemory, ...]

    @property
    def name(self) -> str:
        return "host" if self.device is None else f"GPU {self.device}"

    @property
    def needed(self) -> int:
        """Bytes that all engines on the device need."""
        return sum(engine.total for engine in self.engines)

    @property
    def spare(self) -> int | None:
        """Bytes left, negative if the engines do not fit; None if the capacity is not known."""
        return None if self.capacity is None else self.capacity - self.needed

    @property
    def fits(self) -> bool:
        return self.spare is None or self.spare >= 0


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory of all devices of a pair."""

    devices: tuple[DeviceMemory, ...]

    @property
    def fits(self) -> bool:
        return all(device.fits for device in self.devices)

    @property
    def missing(self) -> int:
        """Bytes that the device with the largest shortage lacks; 0 if everything fits."""
        return max([0, *(-device.spare for device in self.devices if device.spare is not None)])

    def on(self, device: int | None) -> DeviceMemory:
        """Return the plan of one device (None: the host). Raises KeyError for an unused device."""
        for each in self.devices:
            if each.device == device:
                return each
        raise KeyError(device)


def plan_memory(pair: PairDescription) -> MemoryPlan:
    """Return the memory that each engine of the pair needs on each of its devices."""
    capacity = None if pair.gpu is None else int(pair.gpu.memory_mib * (1 << 20) * USABLE_SHARE)
    found: dict[int | None, list[EngineMemory]] = {}
    engines = [(engine, _engine_memory(pair, engine)) for engine in pair.engines]
    if pair.engine == LLMAPI or (pair.has_drafters_inside and not pair.serves_drafts):
        engines = [(pair.target, _as_one([memory for _, memory in engines]))]
    for engine, memory in engines:
        for device in engine.placement.devices or (None,):
            found.setdefault(device, []).append(memory)
    return MemoryPlan(
        tuple(
            DeviceMemory(device, None if device is None else capacity, tuple(engines))
            for device, engines in sorted(
                found.items(), key=lambda item: (item[0] is None, item[0])
            )
        )
    )


def _as_one(parts: list[EngineMemory]) -> EngineMemory:
    """Return target and draft as one engine with one KV cache, as they run inside it."""
    target = parts[0]
    return replace(
        target,
        weights=sum(each.weights for each in parts),
        activations=max(each.activations for each in parts),
        buffers=sum(each.buffers for each in parts),
        kv_cache=sum(each.kv_cache for each in parts),
        kv_bytes_per_token=sum(each.kv_bytes_per_token for each in parts),
    )


def _engine_memory(pair: PairDescription, engine: EngineDescription) -> EngineMemory:
    weights = weight_bytes(engine, is_compiled=pair.engine == TENSORRTLLM)
    per_token = kv_bytes_per_token(engine)
    own = pair.self_speculation
    if own is not None and engine is pair.target:
        weights += head_bytes(engine, own)
        if own.mode in ("eagle3", "eagle"):  # one more layer, with a KV cache of its own
            stages = engine.placement.pipeline_parallel
            per_token += per_token // -(-engine.shape.num_layers // stages)
    return EngineMemory(
        engine=engine.name,
        weights=weights,
        activations=activation_bytes(pair, engine),
        buffers=buffer_bytes(pair, engine),
        context=CONTEXT_BYTES if engine.placement.devices else 0,
        kv_cache=num_kv_tokens(pair, engine) * per_token,
        kv_bytes_per_token=per_token,
        fraction=engine.kv_cache_fraction,
    )
