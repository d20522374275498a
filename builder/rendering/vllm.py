"""Rendering the target as a vLLM engine with our drafters inside (specdec/vllm_engine)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from specdec.builder.description import PairDescription
from specdec.builder.rendering.pbtxt import ModelConfig, Parameter, Tensor
from specdec.deployment.versions import CHECKPOINT, HEAD
from specdec.engines.wire import contract

MODEL_PY = '''"""A vLLM engine with our drafters inside; all code is in the package `specdec`."""

from specdec.engine_model.vllm_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''

CPU_BLOCK_SIZE = 32
"""Tokens of a KV cache block. vLLM's default of 16 fails in its attention on CPUs (0.32)."""


def _scalar(name: str, data_type: str, *, is_optional: bool = True) -> Tensor:
    return Tensor(name, data_type, is_scalar=True, is_optional=is_optional)


INPUTS = (
    Tensor(contract.INPUT_IDS, "INT32", (-1,), is_optional=True, is_ragged=True),
    _scalar(contract.INPUT_LENGTHS, "INT32", is_optional=False),
    _scalar(contract.REQUEST_OUTPUT_LEN, "INT32", is_optional=False),
    *(
        _scalar(name, data_type)
        for name, data_type in (
            (contract.END_ID, "INT32"),
            (contract.PROMPT_LENGTH, "INT32"),
            (contract.TEMPERATURE, "FP32"),
            (contract.RUNTIME_TOP_K, "INT32"),
            (contract.RUNTIME_TOP_P, "FP32"),
            (contract.MIN_P, "FP32"),
            (contract.REPETITION_PENALTY, "FP32"),
            (contract.PRESENCE_PENALTY, "FP32"),
            (contract.FREQUENCY_PENALTY, "FP32"),
            (contract.MIN_TOKENS, "INT32"),
            (contract.SEED, "UINT64"),
            (contract.RETURN_LOG_PROBS, "BOOL"),
            (contract.STREAMING, "BOOL"),
            (contract.STOP, "BOOL"),
            (contract.EXCLUDE_INPUT_IN_OUTPUT, "BOOL"),
            (contract.RETURN_PERF_METRICS, "BOOL"),
            (contract.CACHE_SALT, "STRING"),
            (contract.DRAFTING, "STRING"),
        )
    ),
    Tensor(contract.EMBEDDING_BIAS, "FP32", (-1,), is_optional=True, is_ragged=True),
    Tensor(contract.BAD_TEXTS, "STRING", (-1,), is_optional=True, is_ragged=True),
)
OUTPUTS = (
    Tensor(contract.OUTPUT_IDS, "INT32", (-1, -1)),
    Tensor(contract.SEQUENCE_LENGTH, "INT32", (-1,)),
    Tensor(contract.OUTPUT_LOG_PROBS, "FP32", (-1, -1)),
    Tensor(contract.CUM_LOG_PROBS, "FP32", (-1,)),
    Tensor(contract.DRAFTING_REPORT, "STRING"),
    Tensor(contract.RECEIPT_ADDRESS, "STRING"),
    *(Tensor(f"{what}_time_ns", "INT64") for what in ("arrival", "first_scheduled")),
    *(Tensor(f"{what}_time_ns", "INT64") for what in ("first_token", "last_token")),
    Tensor(contract.TOTAL_DRAFT_TOKENS, "INT32"),
    Tensor(contract.TOTAL_ACCEPTED_DRAFT_TOKENS, "INT32"),
    Tensor("acceptance_rate", "FP32"),
)


def write_vllm_model(pair: PairDescription, model: Path, shared: Mapping[str, str]) -> None:
    """Write the target's model folder `model`: config.pbtxt and model.py.

    `shared` are the parameters of drafters and controller that it has in common with `specdec`.
    """
    (model / "1").mkdir(parents=True)
    limits, target, own = pair.limits, pair.target, pair.self_speculation
    parameters = {
        "checkpoint_dir": CHECKPOINT,
        "dtype": target.precision.dtype,
        "max_seq_len": str(limits.max_seq_len),
        "max_draft_len": str(limits.max_draft_len),
        "max_num_sequences": str(limits.max_batch_size),
        "vllm_drafter": "" if own is None else own.mode,
        "vllm_drafter_dir": "" if own is None or own.mode == "mtp" else HEAD,
        "vllm_engine_args": json.dumps(engine_arguments(pair)),
        "kv_cache_gib": str(_kv_cache_gib(pair)) if pair.gpu is None else "0",
        **shared,
    }
    config = ModelConfig(
        name=target.name,
        backend="python",
        comment=(
            f"{target.model} in vLLM. The parameters of drafters and controller are those of\n"
            "the model specdec, which refuses to load if they differ."
        ),
        inputs=INPUTS,
        outputs=OUTPUTS,
        max_batch_size=1,
        parameters=[Parameter(name, value) for name, value in parameters.items()],
    )
    (model / "config.pbtxt").write_text(config.text(), "utf-8")
    (model / "1" / "model.py").write_text(MODEL_PY, "utf-8")


def engine_arguments(pair: PairDescription) -> dict[str, object]:
    """Return the arguments of vLLM's AsyncEngineArgs that depend on the devices."""
    if pair.gpu is None:
        return {"block_size": CPU_BLOCK_SIZE}
    target, placement = pair.target, pair.target.placement
    arguments: dict[str, object] = {"tensor_parallel_size": placement.tensor_parallel}
    if target.precision.kv_cache != "auto":
        arguments["kv_cache_dtype"] = target.precision.kv_cache
    return arguments


def _kv_cache_gib(pair: PairDescription) -> int:
    """Return the GiB of the KV cache on a CPU, for the expected load."""
    shape, load = pair.target.shape, pair.load
    num_bytes = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * 2
    return max(1, -(-load.num_sequences * load.sequence_len * num_bytes // 2**30))
