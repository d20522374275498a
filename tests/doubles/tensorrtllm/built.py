"""Read an engine directory that `trtllm-build` wrote, as the backend does when it loads a model."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DRAFT_TOKENS_EXTERNAL = 2
"""The value of SpeculativeDecodingMode in tensorrt_llm/models/modeling_utils.py for targets of
external drafts [V]."""


class LoadError(Exception):
    """The backend refuses to load the model; the message is the backend's."""


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """An engine's limits and vocabulary from its config.json; lengths in tokens."""

    checkpoint: Path
    """Checkpoint that the double runs in place of the engine."""
    max_batch_size: int
    max_input_len: int
    max_seq_len: int
    """Longest sequence. For an engine with external drafts it includes max_draft_len, because
    build() adds that [V]."""
    max_draft_len: int
    """Longest draft; 0 for an engine without external drafts."""
    has_generation_logits: bool
    """Whether the engine can return logits of generated tokens."""
    num_tokens: int
    """Size of the vocabulary."""
    num_columns: int
    """Columns of the logits: the vocabulary padded to a multiple of the tensor parallelism [V]."""

    @classmethod
    def load(cls, directory: Path, *, enable_kv_cache_reuse: bool) -> BuiltEngine:
        """Read config.json of `directory`, and the checkpoint's path from rank0.engine.

        Raise LoadError if config.json is missing, or if a target of external drafts has no reuse of
        KV cache blocks.
        """
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
