"""Changes that make a pair need less memory, each computed as a pair of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from specdec.builder.description import EngineDescription, PairDescription, Precision
from specdec.builder.description.loading import known_shapes
from specdec.builder.memory.plan import MemoryPlan, plan_memory

MIN_CAPABILITY_FP8 = 89
"""Lowest compute capability with FP8, times ten."""
MAX_STEPS = 6
"""Most remedies that `combination` puts together."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change to a pair that saves memory."""

    what: str
    """Description of the change, for people."""
    pair: PairDescription
    """Pair with the change."""
    saved: int
    """Bytes saved on the device that was fullest."""
    fits: bool
    """Whether everything fits after this change alone."""


def remedies(pair: PairDescription, plan: MemoryPlan) -> list[Remedy]:
    """Return the changes that save memory on the fullest device, the largest saving first.

    Empty without a device whose capacity is known.
    """
    spares = [(device.spare, device) for device in plan.devices if device.spare is not None]
    if not spares:
        return []
    fullest = min(spares, key=lambda item: item[0])[1]
    found = []
    for what, changed in _changes(pair):
        new = plan_memory(changed)
        after = next((each.needed for each in new.devices if each.device == fullest.device), 0)
        if after < fullest.needed:
            found.append(Remedy(what, changed, fullest.needed - after, new.fits))
    return sorted(found, key=lambda each: -each.saved)


def combination(pair: PairDescription) -> list[Remedy]:
    """Return remedies to apply one after another until everything fits on the same number of GPUs.

    Each step takes the smallest saving that makes everything fit, or else the largest saving.
    Empty if everything fits already, or if up to MAX_STEPS remedies do not suffice.
    """
    steps: list[Remedy] = []
    plan = plan_memory(pair)
    while not plan.fits:
        found = [each for each in remedies(pair, plan) if _num_gpus(each.pair) == _num_gpus(pair)]
        if not found or len(steps) == MAX_STEPS:
            return []
        steps.append(next((each for each in reversed(found) if each.fits), found[0]))
        pair = steps[-1].pair
        plan = plan_memory(pair)
    return steps


def _num_gpus(pair: PairDescription) -> int:
    return len({device for each in pair.engines for device in each.placement.devices})


def _changes(pair: PairDescription) -> Iterator[tuple[str, PairDescription]]:
    """Yield (description, changed pair) for all changes that may save memory."""
    limits, load = pair.limits, pair.load
    half = max(1, load.num_sequences // 2)
    if half < load.num_sequences:
        changed = replace(
            pair,
            load=replace(load, num_sequences=half),
            limits=replace(limits, max_batch_size=max(1, min(limits.max_batch_size, half))),
        )
        yield f"{half} sequences at once instead of {load.num_sequences}", changed
    length = load.sequence_len // 2
    if length:
        changed = replace(pair, load=replace(load, sequence_len=length))
        yield f"plan for {length:,} tokens a sequence instead of {load.sequence_len:,}", changed
    rows = limits.max_num_tokens // 2
    if rows >= limits.max_batch_size * (limits.max_draft_len + 1):
        changed = replace(pair, limits=replace(limits, max_num_tokens=rows))
        yield f"max_num_tokens = {rows} instead of {limits.max_num_tokens}", changed
    yield from _smaller_drafts(pair)
    for engine in pair.engines:
        yield from _precisions(pair, engine)
        yield from _more_devices(pair, engine)


def _smaller_drafts(pair: PairDescription) -> Iterator[tuple[str, PairDescription]]:
    for draft in pair.drafts:
        family = [
            (name, shape)
            for name, shape in known_shapes().items()
            if shape.family == draft.shape.family
            and shape.total_parameters < draft.shape.total_parameters
        ]
        if family:
            name, shape = max(family, key=lambda item: item[1].total_parameters)
            smaller = replace(draft, shape=shape, model=name)
            yield f"{draft.name}: {name} instead of {draft.model}", _with(pair, smaller)


def _precisions(
    pair: PairDescription, engine: EngineDescription
) -> Iterator[tuple[str, PairDescription]]:
    if engine.precision.quantization != "none" or pair.gpu is None:
        return
    has_fp8 = pair.gpu.compute_capability >= MIN_CAPABILITY_FP8
    dtype = engine.precision.dtype
    if has_fp8:
        yield _precise(pair, engine, Precision(dtype, "fp8"), "weights in FP8")
        both = Precision(dtype, "fp8", "fp8")
        yield _precise(pair, engine, both, "weights and KV cache in FP8")
    if pair.gpu.compute_capability < 100:  # SM100 has no INT8 and INT4 kernels
        kv_cache = engine.precision.kv_cache
        if not has_fp8 or engine is not pair.target:
            yield _precise(pair, engine, Precision(dtype, "int8_wo", kv_cache), "weights in INT8")
        yield _precise(
            pair, engine, Precision(dtype, "int4_awq", kv_cache), "weights in INT4 (AWQ)"
        )


def _more_devices(
    pair: PairDescription, engine: EngineDescription
) -> Iterator[tuple[str, PairDescription]]:
    placement = engine.placement
    used = [device for each in pair.engines for device in each.placement.devices]
    if not placement.devices:
        return
    free = max(used) + 1
    tensor = 2 * placement.tensor_parallel
    shape = engine.shape
    if all(size % tensor == 0 for size in (shape.num_heads, shape.intermediate_size)):
        more = tuple(range(free, free + len(placement.devices)))
        split = replace(placement, devices=placement.devices + more, tensor_parallel=tensor)
        changed = _with(pair, replace(engine, placement=split))
        count = f"{len(more)} more GPU{'s' if len(more) > 1 else ''}"
        yield f"{engine.name}: tensor_parallel = {tensor} ({count})", changed
    if engine is not pair.target and set(placement.devices) & set(pair.target.placement.devices):
        moved = tuple(range(free, free + len(placement.devices)))
        changed = _with(pair, replace(engine, placement=replace(placement, devices=moved)))
        yield f"{engine.name}: on GPUs of its own", changed


def _precise(
    pair: PairDescription, engine: EngineDescription, precision: Precision, what: str
) -> tuple[str, PairDescription]:
    return f"{engine.name}: {what}", _with(pair, replace(engine, precision=precision))


def _with(pair: PairDescription, engine: EngineDescription) -> PairDescription:
    """Return the pair with `engine` in place of the engine of that name."""
    if engine.name == pair.target.name:
        return replace(pair, target=engine)
    drafts = tuple(engine if each.name == engine.name else each for each in pair.drafts)
    return replace(pair, drafts=drafts)
