"""Rendering a target with our drafters inside: what all such engines have in common."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from specdec.builder.description import PairDescription
from specdec.builder.rendering.pbtxt import ModelConfig, Parameter, Tensor
from specdec.deployment.versions import CHECKPOINT
from specdec.engines.wire import contract

DRAFT_BUDGET_MS, CPU_DRAFT_BUDGET_MS = "10", "50"
"""Values of `draft_budget_ms`; the second with draft models on a CPU, which they share with the
target."""


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
            (contract.NUM_TOP_LOG_PROBS, "INT32"),
            (contract.STREAMING, "BOOL"),
            (contract.STOP, "BOOL"),
            (contract.EXCLUDE_INPUT_IN_OUTPUT, "BOOL"),
            (contract.RETURN_PERF_METRICS, "BOOL"),
            (contract.CACHE_SALT, "STRING"),
            (contract.DRAFTING, "STRING"),
        )
    ),
    Tensor(contract.EMBEDDING_BIAS, "FP32", (-1,), is_optional=True, is_ragged=True),
    *(
        Tensor(name, "STRING", shape, is_optional=True, is_ragged=True)
        for name, shape in (
            (contract.BAD_TEXTS, (-1,)),
            (contract.GUIDE_TYPE, (1,)),
            (contract.GUIDE, (1,)),
        )
    ),
)
OUTPUTS = (
    Tensor(contract.OUTPUT_IDS, "INT32", (-1, -1)),
    Tensor(contract.SEQUENCE_LENGTH, "INT32", (-1,)),
    Tensor(contract.OUTPUT_LOG_PROBS, "FP32", (-1, -1)),
    Tensor(contract.CUM_LOG_PROBS, "FP32", (-1,)),
    Tensor(contract.TOP_IDS, "INT32", (-1, -1)),
    Tensor(contract.TOP_LOG_PROBS, "FP32", (-1, -1)),
    Tensor(contract.DRAFTING_REPORT, "STRING"),
    Tensor(contract.RECEIPT_ADDRESS, "STRING"),
    *(Tensor(f"{what}_time_ns", "INT64") for what in ("arrival", "first_scheduled")),
    *(Tensor(f"{what}_time_ns", "INT64") for what in ("first_token", "last_token")),
    Tensor(contract.TOTAL_DRAFT_TOKENS, "INT32"),
    Tensor(contract.TOTAL_ACCEPTED_DRAFT_TOKENS, "INT32"),
    Tensor("acceptance_rate", "FP32"),
)


def write_batch_engine_model(
    pair: PairDescription, model: Path, model_py: str, engine: str, parameters: Mapping[str, str]
) -> None:
    """Write the target's model folder `model`: config.pbtxt and model.py.

    `model_py` is the text of model.py, `engine` the engine's name for people, and `parameters` the
    parameters that only this kind of engine has.
    """
    (model / "1").mkdir(parents=True, exist_ok=True)
    limits, target = pair.limits, pair.target
    values = {
        "checkpoint_dir": CHECKPOINT,
        "dtype": target.precision.dtype,
        "max_seq_len": str(limits.max_seq_len),
        "max_draft_len": str(limits.max_draft_len),
        "max_num_sequences": str(limits.max_batch_size),
        "draft_budget_ms": _draft_budget_ms(pair),
        **parameters,
    }
    config = ModelConfig(
        name=target.name,
        backend="python",
        comment=(
            f"{target.model} in {engine}. The parameters of drafters and controller are those of\n"
            "the model specdec, which refuses to load if they differ."
        ),
        inputs=INPUTS,
        outputs=OUTPUTS,
        max_batch_size=1,
        parameters=[Parameter(name, value) for name, value in values.items()],
    )
    (model / "config.pbtxt").write_text(config.text(), "utf-8")
    (model / "1" / "model.py").write_text(model_py, "utf-8")


def _draft_budget_ms(pair: PairDescription) -> str:
    has_models_on_cpu = bool(pair.drafts) and pair.serves_drafts and pair.gpu is None
    return CPU_DRAFT_BUDGET_MS if has_models_on_cpu else DRAFT_BUDGET_MS
