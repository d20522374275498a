"""Define the parameters of an engine of TensorRT-LLM's LLM API with our drafters inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from specdec.errors import ConfigurationError
from specdec.settings.batch_engine import (
    BatchEngineSettings,
    check_arguments,
    read_json_object,
)
from specdec.settings.parameters import parameter, parsed

OUR_ARGUMENTS = (
    *("model", "backend", "dtype", "max_seq_len", "max_batch_size", "max_num_tokens"),
    *("speculative_config", "disable_overlap_scheduler", "kv_cache_config"),
    "guided_decoding_backend",
)
"""Arguments of `tensorrt_llm.LLM` that follow from other parameters, or from how our drafters and
guides work."""

ONE_ONLY = ("tensor_parallel_size", "pipeline_parallel_size")
"""Arguments that must be 1 in an engine that verifies draft tokens: with more, TensorRT-LLM runs
the engine in other processes, which our drafters cannot reach."""


@dataclass(frozen=True, slots=True)
class TensorRtLlmModelSettings(BatchEngineSettings):
    """The parameters of an engine of TensorRT-LLM's LLM API, with their names in config.pbtxt."""

    kind: ClassVar[str] = "tensorrt_llm"
    max_num_tokens: int = parameter(8192, minimum=1)
    """Most tokens of all requests in a step."""
    kv_cache_fraction: float = parameter(0.9, minimum=0.01)
    """Share of the GPU's free memory for the KV cache (`free_gpu_memory_fraction`)."""
    kv_cache_dtype: str = "auto"
    """Type of the KV cache."""
    engine_args: Mapping[str, Any] = parsed("tensorrt_llm_engine_args", read_json_object)
    """Further arguments of `tensorrt_llm.LLM` as a JSON object."""

    def __post_init__(self) -> None:
        """Raise ConfigurationError for values that contradict one another."""
        BatchEngineSettings.__post_init__(self)
        if self.kv_cache_fraction >= 1:
            raise ConfigurationError(
                f"kv_cache_fraction must be below 1; given {self.kv_cache_fraction:g}"
            )
        if self.drafters.head:
            raise ConfigurationError(
                "this engine takes no head; target_head_name must be empty, given "
                f"{self.drafters.head!r}"
            )
        one_only = ONE_ONLY if self.max_draft_len else ()
        check_arguments("tensorrt_llm_engine_args", self.engine_args, OUR_ARGUMENTS, one_only)
