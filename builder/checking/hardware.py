"""Checks of the hardware: parallelism, precisions and the kind of GPU."""

from __future__ import annotations

from collections.abc import Iterator

from specdec.builder.checking.findings import Finding, error, note, warning
from specdec.builder.description import (
    TENSORRTLLM,
    TORCH,
    EngineDescription,
    PairDescription,
)
from specdec.builder.description.engine import TORCH_WEIGHT_DTYPES
from specdec.builder.memory.remedies import MIN_CAPABILITY_FP8

AMPERE, BLACKWELL = 80, 100
"""Compute capabilities times ten."""
INTEGER = ("int8_wo", "int8_sq", "int4_wo", "int4_awq")
GPUS_PER_NODE = 8


def check_hardware(pair: PairDescription) -> Iterator[Finding]:
    """Check each engine's parallelism and precision, and what the kind of GPU supports."""
    for engine in pair.engines:
        yield from _check_parallelism(engine)
        yield from _check_precision(pair, engine)
    if pair.engine == TENSORRTLLM and pair.gpu is not None:
        if pair.gpu.compute_capability < AMPERE:
            yield error(
                "gpu",
                f"{pair.gpu.name} has compute capability {pair.gpu.compute_capability / 10}; "
                "draft tokens are verified on Ampere (8.0) and newer",
                "use an A10, A100, L4, L40S, H100 or newer",
            )
        yield from _check_same_parallelism(pair)
    highest = max((each for one in pair.engines for each in one.placement.devices), default=0)
    if highest >= GPUS_PER_NODE:
        yield note(
            "nodes",
            f"GPU {highest} is beyond the first node, if a node has {GPUS_PER_NODE} GPUs; engines "
            "that span nodes are started by MPI on each",
        )


def _check_parallelism(engine: EngineDescription) -> Iterator[Finding]:
    shape, tensor = engine.shape, engine.placement.tensor_parallel
    for what, size in (
        (f"{shape.num_heads} heads", shape.num_heads),
        (f"intermediate_size {shape.intermediate_size:,}", shape.intermediate_size),
    ):
        if size % tensor:
            yield error(
                "tensor_parallel",
                f"{engine.name}: {what} cannot be divided by tensor_parallel = {tensor}",
                f"tensor_parallel = {_divisors(shape.num_heads, shape.intermediate_size)}",
            )
    kv_heads = shape.num_kv_heads
    if kv_heads % tensor and tensor % kv_heads:
        yield error(
            "tensor_parallel",
            f"{engine.name}: {kv_heads} KV heads can be neither divided among {tensor} ranks nor "
            "copied to them evenly",
            f"choose a tensor_parallel that divides {kv_heads} or is a multiple of it",
        )
    elif tensor > kv_heads:
        yield warning(
            "tensor_parallel",
            f"{engine.name}: {tensor} ranks for {kv_heads} KV heads: each head's cache is kept "
            f"{tensor // kv_heads} times",
            f"tensor_parallel = {kv_heads} keeps it once",
        )
    stages = engine.placement.pipeline_parallel
    if shape.num_layers % stages:
        yield warning(
            "pipeline_parallel",
            f"{engine.name}: {shape.num_layers} layers cannot be divided into {stages} equal "
            f"stages: the first have {-(-shape.num_layers // stages)}, and all wait for these",
            f"choose a pipeline_parallel that divides {shape.num_layers}",
        )


def _divisors(heads: int, intermediate: int) -> str:
    return ", ".join(str(n) for n in (1, 2, 4, 8, 16) if heads % n == 0 and intermediate % n == 0)


def _check_precision(pair: PairDescription, engine: EngineDescription) -> Iterator[Finding]:
    precision, name = engine.precision, engine.name
    quantization, kv_cache = precision.quantization, precision.kv_cache
    kind = pair.kind_of(engine)
    if kind == TORCH:
        if quantization not in TORCH_WEIGHT_DTYPES or kv_cache != "auto":
            yield error(
                "quantization",
                f"{name}: a torch engine has quantization {' or '.join(TORCH_WEIGHT_DTYPES)} and "
                f"its KV cache in its dtype; given {quantization}, {kv_cache}",
                'leave precision out, or compile the engine (engine = "tensorrtllm")',
            )
        return
    if kind == TENSORRTLLM:
        yield from _check_kv_cache(pair, engine)
    else:
        yield from _check_loaded_precision(kind, engine)
    if pair.gpu is None:
        return
    capability, gpu = pair.gpu.compute_capability, pair.gpu.name
    if "fp8" in (quantization, kv_cache) and capability < MIN_CAPABILITY_FP8:
        yield error(
            "quantization",
            f"{name}: FP8 needs compute capability 8.9 (L4, L40S, H100); {gpu} has "
            f"{capability / 10}",
            "use int8_wo or int4_awq weights, and leave the KV cache in the dtype",
        )
    if quantization == "nvfp4" and capability < BLACKWELL:
        yield error(
            "quantization",
            f"{name}: NVFP4 needs compute capability 10.0 (B200); {gpu} has {capability / 10}",
            "use fp8, or int4_awq",
        )
    if quantization in INTEGER and capability >= BLACKWELL:
        yield error(
            "quantization",
            f"{name}: TensorRT-LLM builds no {quantization} engines for compute capability "
            f"{capability / 10} ({gpu}): INT8 and INT4 are not supported on SM100",
            "use fp8 or nvfp4",
        )


def _check_loaded_precision(kind: str, engine: EngineDescription) -> Iterator[Finding]:
    """Check an engine that takes weights as they are stored and has no INT8 KV cache."""
    if engine.precision.kv_cache == "int8":
        yield error(
            "kv_cache",
            f"{engine.name}: {kind} has no INT8 KV cache",
            'kv_cache = "auto", or "fp8"',
        )
    if engine.precision.quantization != "none":
        yield note(
            "quantization",
            f"{engine.name}: {kind} does not quantise: its checkpoint must be in "
            f"{engine.precision.quantization} already",
            f"--checkpoint {engine.name}=DIRECTORY, a checkpoint that ModelOpt wrote "
            "(hf_quant_config.json)",
        )


def _check_kv_cache(pair: PairDescription, engine: EngineDescription) -> Iterator[Finding]:
    """Check for KV caches for which trtllm-build silently switches paged context FMHA off.

    KV reuse needs paged context FMHA.
    """
    quantization, kv_cache = engine.precision.quantization, engine.precision.kv_cache
    reason, remedy = "", ""
    if kv_cache == "int8":
        reason = "an INT8 KV cache"
        remedy = 'kv_cache = "auto", or "fp8" with quantization = "fp8"'
    elif kv_cache == "fp8" and quantization != "fp8":
        reason = f"an FP8 KV cache without FP8 weights (quantization is {quantization})"
        remedy = 'quantization = "fp8" too, or kv_cache = "auto"'
    if not reason:
        return
    what = f"{engine.name}: {reason} switches paged context FMHA off when the engine is built"
    if engine is pair.target:
        yield error(
            "kv_cache",
            f"{what}, and with it KV reuse: a target that verifies draft tokens then refuses to "
            "load",
            remedy,
        )
    else:
        yield warning(
            "kv_cache",
            f"{what}, and with it KV reuse: the draft computes the whole context in each round",
            remedy,
        )


def _check_same_parallelism(pair: PairDescription) -> Iterator[Finding]:
    mine = pair.target.placement.tensor_parallel
    for draft in pair.drafts:
        other = draft.placement.tensor_parallel
        if other > mine:
            yield warning(
                "same_parallelism",
                f"{draft.name} has tensor_parallel = {other}, the target {mine}: a small model "
                "split wider than the large one waits for its ranks more than it computes",
                f"tensor_parallel = {mine} or less for the draft",
            )
        elif other != mine:
            yield note(
                "same_parallelism",
                f"target and {draft.name} have tensor_parallel {mine} and {other}. That works, "
                "because the two engines exchange token ids. Fast logits, or one engine that runs "
                "both models, would need the same value",
            )
