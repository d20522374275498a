"""Rendering the target as TensorRT-LLM's `llmapi` model, an engine that speculates by itself.

Sources: triton_backend/all_models/llmapi/tensorrt_llm/{config.pbtxt,1/model.py,1/model.yaml} of
TensorRT-LLM, and the decoding configurations of tensorrt_llm/llmapi/llm_args.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

from specdec.builder.description import PairDescription, SelfSpeculation
from specdec.builder.memory import KvShare
from specdec.builder.rendering.pbtxt import ModelConfig, Parameter, Tensor
from specdec.engines.wire.contract import RECEIPT_ADDRESS

MODEL_YAML = Path("1") / "model.yaml"

INPUTS = (
    Tensor("text_input", "STRING", (-1,)),
    *(
        Tensor(name, data_type, is_optional=True)
        for name, data_type in (
            ("streaming", "BOOL"),
            ("sampling_param_best_of", "INT32"),
            ("sampling_param_temperature", "FP32"),
            ("sampling_param_top_k", "INT32"),
            ("sampling_param_top_p", "FP32"),
            ("sampling_param_frequency_penalty", "FP32"),
            ("sampling_param_presence_penalty", "FP32"),
            ("sampling_param_max_tokens", "INT32"),
        )
    ),
    Tensor("sampling_param_stop", "STRING", (-1,), is_optional=True),
    *(
        Tensor(name, data_type, is_optional=True)
        for name, data_type in (
            ("sampling_param_seed", "UINT64"),
            ("sampling_param_exclude_input_from_output", "BOOL"),
            ("sampling_param_return_perf_metrics", "BOOL"),
            ("return_finish_reason", "BOOL"),
            ("return_stop_reason", "BOOL"),
            ("return_cumulative_logprob", "BOOL"),
            ("stop", "BOOL"),
        )
    ),
)
OUTPUTS = (
    *(Tensor(name, "STRING", (-1,)) for name in ("text_output", "finish_reason", "stop_reason")),
    Tensor("cumulative_logprob", "FP32", (-1,)),
    *(
        Tensor(f"kv_cache_{what}", "INT32", (-1,))
        for what in ("reused_block", "missed_block", "alloc_new_blocks", "alloc_total_blocks")
    ),
    Tensor("kv_cache_hit_rate", "FP32", (-1,)),
    *(
        Tensor(f"{what}_time_ns", "INT64")
        for what in ("arrival", "first_scheduled", "first_token", "last_token")
    ),
    Tensor("acceptance_rate", "FP32"),
    Tensor("total_accepted_draft_tokens", "INT32"),
    Tensor("total_draft_tokens", "INT32"),
    Tensor(RECEIPT_ADDRESS, "STRING", (1,)),  # ours, added by engine_model/llmapi_model.py
)

MODEL_PY = '''"""NVIDIA's llmapi model, from the container that this runs in."""

from specdec.engine_model.llmapi_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''

TRITON = {"max_batch_size": 0, "decoupled": True, "cancellation_check_period_ms": 100}
"""Section `triton_config` of model.yaml: values that the model puts into its configuration, and the
milliseconds between two checks for cancelled requests."""

_RENAMED_IN = Version("1.3.0rc0")
"""First TensorRT-LLM with the decoding types `Eagle3` and `Draft_Target`, which the classes define.
Up to 1.2 they are `Eagle` and `DraftTarget`, from `DecodingBaseConfig.from_dict` (llm_args.py)."""


def write_llmapi_model(pair: PairDescription, model: Path, share: KvShare) -> None:
    """Write the target's model folder `model`: config.pbtxt, model.py and model.yaml."""
    (model / "1").mkdir(parents=True)
    instances = pair.target.placement.instances
    devices = ";".join(",".join(map(str, each)) for each in instances)
    config = ModelConfig(
        name=pair.target.name,
        backend="python",
        comment=(
            f"{pair.target.model} in the PyTorch runtime of TensorRT-LLM {pair.runtime.version}.\n"
            "max_batch_size and decoupled are those of 1/model.yaml: the server is told not to\n"
            "complete configurations."
        ),
        inputs=INPUTS,
        outputs=OUTPUTS,
        max_batch_size=TRITON["max_batch_size"],
        parameters=[Parameter("gpu_device_ids", devices, "The GPUs of each instance.")],
        num_instances=max(1, len(instances)),
    )
    (model / "config.pbtxt").write_text(config.text(), "utf-8")
    (model / "1" / "model.py").write_text(MODEL_PY, "utf-8")
    settings = yaml.safe_dump(model_yaml(pair, share), sort_keys=False)
    (model / MODEL_YAML).write_text(settings, "utf-8")


def loaded_models(pair: PairDescription) -> dict[str, tuple[str, Path | None]]:
    """Return (model name, folder or None) of all weights that the runtime reads.

    The keys are names as in `--checkpoint`: the target, "head", or the draft.
    """
    found = {pair.target.name: (pair.target.model, pair.target.checkpoint)}
    head = pair.self_speculation
    if head is not None and head.mode == "eagle3":
        found["head"] = head.name, head.checkpoint
    if head is not None and head.mode == "draft_target":
        found[pair.drafts[0].name] = pair.drafts[0].model, pair.drafts[0].checkpoint
    return found


def model_yaml(pair: PairDescription, share: KvShare) -> dict[str, Any]:
    """Return the contents of model.yaml: keyword arguments of `tensorrt_llm.LLM`, and TRITON."""
    target, limits = pair.target, pair.limits
    settings: dict[str, Any] = {
        "model": _read_from(pair, target.name),
        "backend": "pytorch",
        "dtype": target.precision.dtype,
        "tensor_parallel_size": target.placement.tensor_parallel,
        "pipeline_parallel_size": target.placement.pipeline_parallel,
        "max_batch_size": limits.max_batch_size,
        "max_num_tokens": limits.max_num_tokens,
        "max_seq_len": limits.max_seq_len,
        "kv_cache_config": {
            "free_gpu_memory_fraction": share.fraction,
            "enable_block_reuse": True,
            "dtype": target.precision.kv_cache,
        },
    }
    if limits.max_num_tokens < limits.max_seq_len:  # a prompt may exceed one pass
        settings["enable_chunked_prefill"] = True
    head = pair.self_speculation
    if head is not None:
        settings |= _speculation(pair, head)
        if head.mode == "draft_target":  # TensorRT-LLM PR 5448
            settings["kv_cache_config"]["enable_block_reuse"] = False
    settings["triton_config"] = dict(TRITON)
    return settings


def _read_from(pair: PairDescription, name: str) -> str:
    """Return the folder of the weights `name`, or the model's name without one."""
    model, folder = loaded_models(pair)[name]
    return str(folder or model)


def _speculation(pair: PairDescription, head: SelfSpeculation) -> dict[str, Any]:
    is_renamed = Version(pair.runtime.version) >= _RENAMED_IN
    model_key = "speculative_model" if is_renamed else "speculative_model_dir"
    config: dict[str, Any]
    if head.mode == "eagle3":
        kind = "Eagle3" if is_renamed else "Eagle"
        config = {"decoding_type": kind, model_key: _read_from(pair, "head")}
    elif head.mode == "ngram":
        config = {"decoding_type": "NGram", "max_matching_ngram_size": head.ngram_size or 3}
    else:
        kind = "Draft_Target" if is_renamed else "DraftTarget"
        config = {"decoding_type": kind, model_key: _read_from(pair, pair.drafts[0].name)}
    settings: dict[str, Any] = {
        "speculative_config": config | {"max_draft_len": head.num_draft_tokens}
    }
    if head.mode != "eagle3":  # these draft between two passes
        settings["disable_overlap_scheduler"] = True
    return settings
