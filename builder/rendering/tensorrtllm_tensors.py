"""The inputs and outputs of the C++ `tensorrtllm` backend in each release.

Sources: all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt of tensorrtllm_backend v0.19.0
and of TensorRT-LLM's triton_backend up to 1.3.0rc20, the last with this backend. Release 0.20
renamed two inputs and added token counts.
"""

from __future__ import annotations

from packaging.version import Version

from specdec.builder.rendering.pbtxt import Tensor

RENAMED_IN = Version("0.20")
"""First release with the inputs `min_tokens` and `seed`, and with token counts."""

LOGITS = "FP32"
"""Data type of logits in all tensors, which is the engine's `logits_dtype`."""


def _required(name: str, data_type: str) -> Tensor:
    return Tensor(name, data_type, is_scalar=True)


def _scalar(name: str, data_type: str) -> Tensor:
    return Tensor(name, data_type, is_scalar=True, is_optional=True)


def _ragged(name: str, data_type: str, *dims: int) -> Tensor:
    return Tensor(name, data_type, dims or (-1,), is_optional=True, is_ragged=True)


def _optional(name: str, data_type: str, *dims: int) -> Tensor:
    return Tensor(name, data_type, dims, is_optional=True)


def inputs(version: str) -> tuple[Tensor, ...]:
    """Return all inputs that the backend of this TensorRT-LLM release declares."""
    is_renamed = Version(version) >= RENAMED_IN
    counts = ("return_num_input_tokens", "return_num_output_tokens") if is_renamed else ()
    return (
        _ragged("input_ids", "INT32"),
        _ragged("encoder_input_features", "FP16", -1, -1),
        _scalar("encoder_output_lengths", "INT32"),
        _required("input_lengths", "INT32"),
        _required("request_output_len", "INT32"),
        _scalar("num_return_sequences", "INT32"),
        _ragged("draft_input_ids", "INT32"),
        _ragged("decoder_input_ids", "INT32"),
        _scalar("decoder_input_lengths", "INT32"),
        _ragged("draft_logits", LOGITS, -1, -1),
        _scalar("draft_acceptance_threshold", "FP32"),
        _scalar("end_id", "INT32"),
        _scalar("pad_id", "INT32"),
        _ragged("stop_words_list", "INT32", 2, -1),
        _ragged("bad_words_list", "INT32", 2, -1),
        _ragged("embedding_bias", "FP32"),
        _scalar("beam_width", "INT32"),
        _scalar("temperature", "FP32"),
        _scalar("runtime_top_k", "INT32"),
        _scalar("runtime_top_p", "FP32"),
        _scalar("runtime_top_p_min", "FP32"),
        _scalar("runtime_top_p_decay", "FP32"),
        _scalar("runtime_top_p_reset_ids", "INT32"),
        _scalar("len_penalty", "FP32"),
        _scalar("early_stopping", "BOOL"),
        _scalar("repetition_penalty", "FP32"),
        _scalar("min_tokens" if is_renamed else "min_length", "INT32"),
        _scalar("beam_search_diversity_rate", "FP32"),
        _scalar("presence_penalty", "FP32"),
        _scalar("frequency_penalty", "FP32"),
        _scalar("seed" if is_renamed else "random_seed", "UINT64"),
        *(
            _scalar(f"return_{what}", "BOOL")
            for what in ("log_probs", "context_logits", "generation_logits", "perf_metrics")
        ),
        *(_scalar(name, "BOOL") for name in counts),
        _scalar("exclude_input_in_output", "BOOL"),
        _scalar("stop", "BOOL"),
        _scalar("streaming", "BOOL"),
        _ragged("prompt_embedding_table", "FP16", -1, -1),
        _ragged("prompt_table_extra_ids", "UINT64"),
        _scalar("prompt_vocab_size", "INT32"),
        _ragged("cross_attention_mask", "BOOL", -1, -1),
        _optional("mrope_rotary_cos_sin", "FP32", -1),
        _optional("mrope_position_deltas", "INT64", 1),
        _scalar("lora_task_id", "UINT64"),
        _ragged("lora_weights", "FP16", -1, -1),
        _ragged("lora_config", "INT32", -1, 3),
        _ragged("context_phase_params", "UINT8"),
        _ragged("skip_cross_attn_blocks", "BOOL", 1),
        *(
            _ragged(f"retention_token_range_{part}", "INT32")
            for part in ("starts", "ends", "priorities", "durations_ms")
        ),
        _ragged("retention_decode_priority", "INT32", 1),
        _ragged("retention_decode_duration_ms", "INT32", 1),
        _ragged("guided_decoding_guide_type", "STRING", 1),
        _ragged("guided_decoding_guide", "STRING", 1),
        _ragged("lookahead_window_size", "INT32", 1),
        _ragged("lookahead_ngram_size", "INT32", 1),
        _ragged("lookahead_verification_set_size", "INT32", 1),
    )


def outputs(version: str) -> tuple[Tensor, ...]:
    """Return all outputs that the backend of this TensorRT-LLM release declares."""
    counts = ("num_input_tokens", "num_output_tokens")
    return (
        Tensor("output_ids", "INT32", (-1, -1)),
        Tensor("sequence_length", "INT32", (-1,)),
        Tensor("cum_log_probs", "FP32", (-1,)),
        Tensor("output_log_probs", "FP32", (-1, -1)),
        Tensor("context_logits", LOGITS, (-1, -1)),
        Tensor("generation_logits", LOGITS, (-1, -1, -1)),
        Tensor("batch_index", "INT32"),
        Tensor("sequence_index", "INT32"),
        Tensor("context_phase_params", "UINT8", (-1,)),
        Tensor("kv_cache_alloc_new_blocks", "INT32"),
        Tensor("kv_cache_reused_blocks", "INT32"),
        Tensor("kv_cache_alloc_total_blocks", "INT32"),
        Tensor("arrival_time_ns", "INT64"),
        Tensor("first_scheduled_time_ns", "INT64"),
        Tensor("first_token_time_ns", "INT64"),
        Tensor("last_token_time_ns", "INT64"),
        Tensor("acceptance_rate", "FP32"),
        Tensor("total_accepted_draft_tokens", "INT32"),
        Tensor("total_draft_tokens", "INT32"),
        *(Tensor(name, "INT32") for name in counts if Version(version) >= RENAMED_IN),
    )
