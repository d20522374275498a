"""An engine directory, as `trtllm-build` leaves it and the backend reads it at load."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DRAFT_TOKENS_EXTERNAL = 2
"""SpeculativeDecodingMode of tensorrt_llm/models/modeling_utils.py [V]."""


class LoadError(Exception):
    """The backend refuses to load the model."""


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """What config.json says of an engine."""

    checkpoint: Path
    max_batch_size: int
    max_input_len: int
    max_seq_len: int
    """Of an engine for external drafts this includes max_draft_len: build() adds it [V]."""
    max_draft_len: int
    has_generation_logits: bool
    num_tokens: int
    num_columns: int
    """Of its logits: the vocabulary padded to a multiple of the tensor parallelism [V]."""

    @classmethod
    def load(cls, directory: Path, *, enable_kv_cache_reuse: bool) -> BuiltEngine:
        """Reads `directory`; its rank0.engine names a checkpoint. Raises LoadError."""
        try:
            raw: dict[str, Any] = json.loads((directory / "config.json").read_text("utf-8"))
        except OSError as error:
            raise LoadError(f"[TensorRT-LLM][ERROR] Assertion failed: {error}") from error
        build, model = raw["build_config"], raw["pretrained_config"]
        is_external = build["speculative_decoding_mode"] == DRAFT_TOKENS_EXTERNAL
        reuses = (
            enable_kv_cache_reuse
            and build["plugin_config"]["use_paged_context_fmha"]
            and not build["gather_context_logits"]
        )
        if is_external and not reuses:
            raise LoadError(
                "[TensorRT-LLM][ERROR] Assertion failed: KV cache block reuse must be enabled for "
                "speculative decoding target model"
            )
        parallelism = model["mapping"]["tp_size"]
        return cls(
            checkpoint=Path((directory / "rank0.engine").read_text("utf-8")),
            max_batch_size=build["max_batch_size"],
            max_input_len=build["max_input_len"],
            max_seq_len=build["max_seq_len"],
            max_draft_len=build["max_draft_len"] if is_external else 0,
            has_generation_logits=build["gather_generation_logits"],
            num_tokens=model["vocab_size"],
            num_columns=math.ceil(model["vocab_size"] / parallelism) * parallelism,
        )
