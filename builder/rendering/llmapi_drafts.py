"""Rendering the target as an engine of TensorRT-LLM's LLM API with our drafters inside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from specdec.builder.description import PairDescription
from specdec.builder.memory import KvShare
from specdec.builder.rendering.batch_engine import write_batch_engine_model

MODEL_PY = '''"""TensorRT-LLM's LLM API with our drafters; all code is in the package `specdec`."""

from specdec.engine_model.tensorrt_llm_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''


def write_llmapi_drafts_model(
    pair: PairDescription, model: Path, shared: Mapping[str, str], share: KvShare
) -> None:
    """Write the target's model folder `model`: config.pbtxt and model.py.

    `shared` are the parameters of drafters and controller that it has in common with `specdec`.
    """
    limits = pair.limits
    arguments: dict[str, object] = {}
    if limits.max_num_tokens < limits.max_seq_len:  # a prompt may exceed one pass
        arguments["enable_chunked_prefill"] = True
    parameters = {
        "max_num_tokens": str(limits.max_num_tokens),
        "kv_cache_fraction": f"{share.fraction:g}",
        "kv_cache_dtype": pair.target.precision.kv_cache,
        "tensorrt_llm_engine_args": json.dumps(arguments),
        **shared,
    }
    write_batch_engine_model(pair, model, MODEL_PY, "TensorRT-LLM's LLM API", parameters)
