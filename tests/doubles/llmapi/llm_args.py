"""Check a rendered model.yaml against the keyword arguments that `tensorrt_llm.LLM` takes.

Only arguments that such a file may have are listed. Source: tensorrt_llm/llmapi/llm_args.py. Its
models refuse unknown fields. The field `decoding_type` selects the kind of speculation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LLM = frozenset(
    {
        *("model", "backend", "dtype", "tensor_parallel_size", "pipeline_parallel_size"),
        *("max_batch_size", "max_num_tokens", "max_seq_len", "kv_cache_config"),
        *("speculative_config", "disable_overlap_scheduler", "enable_chunked_prefill"),
    }
)
KV_CACHE = frozenset({"free_gpu_memory_fraction", "max_tokens", "enable_block_reuse", "dtype"})
_MODEL = frozenset({"max_draft_len", "speculative_model_dir"})
_NEW_MODEL = frozenset({"max_draft_len", "speculative_model"})
_NGRAM = frozenset({"max_draft_len", "max_matching_ngram_size"})
UNTIL_1_3 = {"Eagle": _MODEL, "DraftTarget": _MODEL, "NGram": _NGRAM}
"""Fields by `decoding_type`, in releases before 1.3. `DecodingBaseConfig.from_dict` looks the type
up in a table, which does not have `Draft_Target`, the name in the class attribute."""
SINCE_1_3 = {"Eagle3": _NEW_MODEL, "Draft_Target": _NEW_MODEL, "NGram": _NGRAM}
"""Fields by `decoding_type`, from release 1.3 on. There the type is a field, which must have the
value of its class."""


def checked(
    settings: Mapping[str, Any], decodings: Mapping[str, frozenset[str]] = UNTIL_1_3
) -> Mapping[str, Any]:
    """Return the settings; raise ValueError if the release does not know one of them.

    `decodings` are the fields of each kind of speculation in the release.
    """
    speculation = dict(settings.get("speculative_config", {}))
    kind = speculation.pop("decoding_type", None)
    if speculation and kind not in decodings:
        raise ValueError(f"Invalid decoding type: {kind}")
    for given, known in (
        (settings, LLM),
        (settings.get("kv_cache_config", {}), KV_CACHE),
        (speculation, decodings.get(kind, frozenset())),
    ):
        if unknown := sorted(given.keys() - known):
            raise ValueError(f"Extra inputs are not permitted: {unknown[0]}")
    return settings
