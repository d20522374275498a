"""Checks of single values, which the other checks rely on: is each possible by itself?"""

from __future__ import annotations

from collections.abc import Iterator

from specdec.builder.checking.findings import Finding, error
from specdec.builder.description import (
    LLMAPI_DRAFTS,
    TORCH,
    VLLM,
    EngineDescription,
    PairDescription,
)
from specdec.builder.description.engine import DTYPES, KV_CACHES, QUANTIZATIONS
from specdec.builder.description.pair import ENGINES, MODES
from specdec.builder.description.shape import ARCHITECTURES
from specdec.drafting.registry import RESERVED, is_drafter_name

ORCHESTRATOR, TARGET = "specdec", "target"
"""Names of Triton models that a draft cannot have."""


def check_values(pair: PairDescription) -> Iterator[Finding]:
    """Check kinds of engine, names, counts and devices."""
    yield from _one_of("engine", pair.engine, ENGINES)
    if pair.self_speculation is not None:
        yield from _one_of("[self_speculation]: mode", pair.self_speculation.mode, MODES)
    for name in ("max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens"):
        yield from _at_least_1(f"[limits]: {name}", getattr(pair.limits, name))
    yield from _at_least_1("[limits]: inflight_limit", pair.limits.inflight_limit)
    yield from _at_least_1("[load]: num_sequences", pair.load.num_sequences)
    yield from _at_least_1("[load]: sequence_len", pair.load.sequence_len)
    if pair.limits.max_draft_len < 0:
        yield error(
            "value",
            f"[limits]: max_draft_len must be 0 or more; given {pair.limits.max_draft_len}",
            "set it to the most draft tokens that a round may have, for example 8",
        )
    for engine in pair.engines:
        yield from _check_engine(pair, engine)
    for draft in pair.drafts:
        yield from _check_name(draft.name)


def _check_engine(pair: PairDescription, engine: EngineDescription) -> Iterator[Finding]:
    precision, placement, shape = engine.precision, engine.placement, engine.shape
    name = engine.name
    yield from _one_of(f"{name}: dtype", precision.dtype, DTYPES)
    yield from _one_of(f"{name}: quantization", precision.quantization, QUANTIZATIONS)
    yield from _one_of(f"{name}: kv_cache", precision.kv_cache, KV_CACHES)
    yield from _one_of(f"{name}: architecture", shape.architecture, ARCHITECTURES)
    yield from _at_least_1(f"{name}: tensor_parallel", placement.tensor_parallel)
    yield from _at_least_1(f"{name}: pipeline_parallel", placement.pipeline_parallel)
    for key in (
        *("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads"),
        *("head_dim", "num_tokens", "vocab_size", "max_position_embeddings"),
    ):
        yield from _at_least_1(f"{name}: {key}", getattr(shape, key))
    fraction = engine.kv_cache_fraction
    if fraction is not None and not 0 < fraction < 1:
        yield error(
            "kv_fraction",
            f"{name}: kv_cache_fraction must be above 0 and below 1; given {fraction}: it is a "
            "share of the free memory, and TensorRT-LLM refuses 1",
            "leave it out, so that it is computed",
        )
    if placement.tensor_parallel > 0 and placement.pipeline_parallel > 0:
        yield from _check_devices(pair, engine)


def _check_devices(pair: PairDescription, engine: EngineDescription) -> Iterator[Finding]:
    placement, name = engine.placement, engine.name
    devices = placement.devices
    if not devices:
        yield from _check_without_devices(pair, engine)
        return
    if pair.gpu is None:
        yield error(
            "gpu",
            f"{name} runs on GPUs {list(devices)}, but the file does not say which kind they are",
            'add gpu = "H100-80GB", or another of gpus.toml, or a table with memory_mib and '
            "compute_capability",
        )
    if len(set(devices)) < len(devices) or min(devices) < 0:
        yield error(
            "devices",
            f"{name}: devices must be different and 0 or more; given {list(devices)}",
            "name each GPU once; for several instances name the GPUs of all of them",
        )
    if len(devices) % placement.world_size:
        yield error(
            "devices",
            f"{name}: an instance takes tensor_parallel × pipeline_parallel = "
            f"{placement.world_size} GPUs; {len(devices)} given",
            f"name {placement.world_size} GPUs, or a multiple for several instances",
        )
    if pair.engine == LLMAPI_DRAFTS and len(devices) > 1:
        yield error(
            "devices",
            f"{name}: our drafters run in an llmapi-drafts engine on one GPU; given {len(devices)}",
            'name one GPU, or serve the model by vLLM (engine = "vllm")',
        )
    if pair.engine == VLLM and (len(placement.instances) > 1 or placement.pipeline_parallel > 1):
        yield error(
            "devices",
            f"{name}: our drafters run in a vLLM engine with one instance and one stage; given "
            f"{len(placement.instances)} instances and pipeline_parallel = "
            f"{placement.pipeline_parallel}",
            "serve each instance from a repository of its own, and use tensor_parallel",
        )
    if pair.engine == TORCH and placement.world_size > 1:
        yield error(
            "devices",
            f"{name}: a torch engine runs on one GPU; tensor_parallel × pipeline_parallel is "
            f"{placement.world_size}",
            'leave both at 1, or compile the engine (engine = "tensorrtllm")',
        )


def _check_without_devices(pair: PairDescription, engine: EngineDescription) -> Iterator[Finding]:
    if pair.engine not in (TORCH, VLLM):
        yield error(
            "devices",
            f"{engine.name}: {pair.engine} engines run on GPUs; devices is empty",
            "name the GPUs: placement = { devices = [0] }",
        )
    elif engine.placement.world_size > 1:
        yield error(
            "devices",
            f"{engine.name}: tensor_parallel × pipeline_parallel is {engine.placement.world_size}, "
            "but without devices an engine runs on the CPU",
            "leave both at 1",
        )


def _check_name(name: str) -> Iterator[Finding]:
    if name in (ORCHESTRATOR, TARGET) or not is_drafter_name(name):
        yield error(
            "draft_name",
            f"a draft cannot be named {name!r}: it becomes a model's name, and requests would "
            "mean something else by it",
            "use letters, digits, '_', '-' and '.', and none of "
            + ", ".join((*RESERVED, ORCHESTRATOR, TARGET)),
        )


def _one_of(what: str, value: str, known: tuple[str, ...]) -> Iterator[Finding]:
    if value not in known:
        yield error("value", f"{what} {value!r} is not known", f"one of: {', '.join(known)}")


def _at_least_1(what: str, value: int) -> Iterator[Finding]:
    if value < 1:
        yield error("value", f"{what} must be 1 or more; given {value}", "set a positive count")
