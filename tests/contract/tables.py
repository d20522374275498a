"""Names, types and shapes that users and NVIDIA's software rely on, as data.

The contract tests compare our files with these tables.
"""

from __future__ import annotations

from typing import NamedTuple


class Tensor(NamedTuple):
    """A tensor as config.pbtxt declares it."""

    data_type: str
    dims: tuple[int, ...]
    """Dimensions without the batch; -1 for any size."""
    is_scalar: bool = False
    """Whether it has `reshape: { shape: [ ] }`: [1, 1] on the wire, [1] in the model."""
    is_optional: bool = False
    is_ragged: bool = False
    """Whether it has `allow_ragged_batch`."""


def _scalar(data_type: str, *, optional: bool = True) -> Tensor:
    return Tensor(data_type, (1,), is_scalar=True, is_optional=optional)


def _list(data_type: str, *dims: int) -> Tensor:
    return Tensor(data_type, dims, is_optional=True, is_ragged=True)


# Source: all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt of tensorrtllm_backend v0.19.0,
# and v0.20.0 for the new names of min_length and random_seed. Left out: inputs of encoder-decoder
# models, LoRA, multimodal prompts and beam search.
NVIDIA_INPUTS = {
    "input_ids": _list("TYPE_INT32", -1),
    "input_lengths": _scalar("TYPE_INT32", optional=False),
    "request_output_len": _scalar("TYPE_INT32", optional=False),
    "draft_input_ids": _list("TYPE_INT32", -1),
    "draft_logits": _list("TYPE_FP32", -1, -1),
    "draft_acceptance_threshold": _scalar("TYPE_FP32"),
    "end_id": _scalar("TYPE_INT32"),
    "pad_id": _scalar("TYPE_INT32"),
    "stop_words_list": _list("TYPE_INT32", 2, -1),
    "bad_words_list": _list("TYPE_INT32", 2, -1),
    "embedding_bias": _list("TYPE_FP32", -1),
    "beam_width": _scalar("TYPE_INT32"),
    "temperature": _scalar("TYPE_FP32"),
    "runtime_top_k": _scalar("TYPE_INT32"),
    "runtime_top_p": _scalar("TYPE_FP32"),
    "repetition_penalty": _scalar("TYPE_FP32"),
    "presence_penalty": _scalar("TYPE_FP32"),
    "frequency_penalty": _scalar("TYPE_FP32"),
    "min_length": _scalar("TYPE_INT32"),
    "min_tokens": _scalar("TYPE_INT32"),
    "random_seed": _scalar("TYPE_UINT64"),
    "seed": _scalar("TYPE_UINT64"),
    "return_log_probs": _scalar("TYPE_BOOL"),
    "return_generation_logits": _scalar("TYPE_BOOL"),
    "guided_decoding_guide_type": _list("TYPE_STRING", 1),
    "guided_decoding_guide": _list("TYPE_STRING", 1),
    "return_perf_metrics": _scalar("TYPE_BOOL"),
    "exclude_input_in_output": _scalar("TYPE_BOOL"),
    "stop": _scalar("TYPE_BOOL"),
    "streaming": _scalar("TYPE_BOOL"),
}

# Inputs of our own engines, which `engine_extensions` announces; none is required.
OWN_INPUTS = {
    "min_p": _scalar("TYPE_FP32"),
    "bad_texts": _list("TYPE_STRING", -1),
    "num_top_log_probs": _scalar("TYPE_INT32"),
    "cache_salt": _scalar("TYPE_STRING"),
    "prompt_length": _scalar("TYPE_INT32"),
    "verification": _scalar("TYPE_STRING"),
    "draft_parents": _list("TYPE_INT32", -1),
    "num_next_drafts": _scalar("TYPE_INT32"),
    "next_draft_depth": _scalar("TYPE_INT32"),
    "row_lengths": _list("TYPE_INT32", -1),
    "row_cache_salts": _list("TYPE_STRING", -1),
}
OWN_OUTPUTS = {
    "next_draft_ids": Tensor("TYPE_INT32", (-1, -1)),
    "next_draft_parents": Tensor("TYPE_INT32", (-1, -1)),
    "receipt_address": Tensor("TYPE_STRING", (1,)),
    "top_ids": Tensor("TYPE_INT32", (-1, -1)),
    "top_log_probs": Tensor("TYPE_FP32", (-1, -1)),
}

# Source: as of NVIDIA_INPUTS.
NVIDIA_OUTPUTS = {
    "output_ids": Tensor("TYPE_INT32", (-1, -1)),
    "sequence_length": Tensor("TYPE_INT32", (-1,)),
    "cum_log_probs": Tensor("TYPE_FP32", (-1,)),
    "output_log_probs": Tensor("TYPE_FP32", (-1, -1)),
    "generation_logits": Tensor("TYPE_FP32", (-1, -1, -1)),
    "kv_cache_alloc_new_blocks": Tensor("TYPE_INT32", (1,)),
    "kv_cache_reused_blocks": Tensor("TYPE_INT32", (1,)),
    "kv_cache_alloc_total_blocks": Tensor("TYPE_INT32", (1,)),
    "arrival_time_ns": Tensor("TYPE_INT64", (1,)),
    "first_scheduled_time_ns": Tensor("TYPE_INT64", (1,)),
    "first_token_time_ns": Tensor("TYPE_INT64", (1,)),
    "last_token_time_ns": Tensor("TYPE_INT64", (1,)),
    "acceptance_rate": Tensor("TYPE_FP32", (1,)),
    "total_accepted_draft_tokens": Tensor("TYPE_INT32", (1,)),
    "total_draft_tokens": Tensor("TYPE_INT32", (1,)),
}

# Inputs of the backend that no engine of ours takes. Source: as of NVIDIA_INPUTS, and
# TensorRT-LLM's triton_backend up to 1.3.0rc20.
NVIDIA_OTHER_INPUTS = {
    "encoder_input_features": _list("TYPE_FP16", -1, -1),
    "encoder_output_lengths": _scalar("TYPE_INT32"),
    "num_return_sequences": _scalar("TYPE_INT32"),
    "decoder_input_ids": _list("TYPE_INT32", -1),
    "decoder_input_lengths": _scalar("TYPE_INT32"),
    "runtime_top_p_min": _scalar("TYPE_FP32"),
    "runtime_top_p_decay": _scalar("TYPE_FP32"),
    "runtime_top_p_reset_ids": _scalar("TYPE_INT32"),
    "len_penalty": _scalar("TYPE_FP32"),
    "early_stopping": _scalar("TYPE_BOOL"),
    "beam_search_diversity_rate": _scalar("TYPE_FP32"),
    "return_context_logits": _scalar("TYPE_BOOL"),
    "return_num_input_tokens": _scalar("TYPE_BOOL"),
    "return_num_output_tokens": _scalar("TYPE_BOOL"),
    "prompt_embedding_table": _list("TYPE_FP16", -1, -1),
    "prompt_table_extra_ids": _list("TYPE_UINT64", -1),
    "prompt_vocab_size": _scalar("TYPE_INT32"),
    "cross_attention_mask": _list("TYPE_BOOL", -1, -1),
    "mrope_rotary_cos_sin": Tensor("TYPE_FP32", (-1,), is_optional=True),
    "mrope_position_deltas": Tensor("TYPE_INT64", (1,), is_optional=True),
    "lora_task_id": _scalar("TYPE_UINT64"),
    "lora_weights": _list("TYPE_FP16", -1, -1),
    "lora_config": _list("TYPE_INT32", -1, 3),
    "context_phase_params": _list("TYPE_UINT8", -1),
    "skip_cross_attn_blocks": _list("TYPE_BOOL", 1),
    "retention_token_range_starts": _list("TYPE_INT32", -1),
    "retention_token_range_ends": _list("TYPE_INT32", -1),
    "retention_token_range_priorities": _list("TYPE_INT32", -1),
    "retention_token_range_durations_ms": _list("TYPE_INT32", -1),
    "retention_decode_priority": _list("TYPE_INT32", 1),
    "retention_decode_duration_ms": _list("TYPE_INT32", 1),
    "lookahead_window_size": _list("TYPE_INT32", 1),
    "lookahead_ngram_size": _list("TYPE_INT32", 1),
    "lookahead_verification_set_size": _list("TYPE_INT32", 1),
}
NVIDIA_OTHER_OUTPUTS = {
    "context_logits": Tensor("TYPE_FP32", (-1, -1)),
    "batch_index": Tensor("TYPE_INT32", (1,)),
    "sequence_index": Tensor("TYPE_INT32", (1,)),
    "context_phase_params": Tensor("TYPE_UINT8", (-1,)),
    "num_input_tokens": Tensor("TYPE_INT32", (1,)),
    "num_output_tokens": Tensor("TYPE_INT32", (1,)),
}
NVIDIA_UNTIL_0_20 = {"min_length", "random_seed"}
NVIDIA_SINCE_0_20 = {
    "min_tokens",
    "seed",
    "return_num_input_tokens",
    "return_num_output_tokens",
    "num_input_tokens",
    "num_output_tokens",
}
NVIDIA_PARAMETERS = {
    "FORCE_CPU_ONLY_INPUT_TENSORS",
    "batch_scheduler_policy",
    "cancellation_check_period_ms",
    "cross_kv_cache_fraction",
    "cuda_graph_cache_size",
    "cuda_graph_mode",
    "decoding_mode",
    "eagle_choices",
    "enable_chunked_context",
    "enable_context_fmha_fp32_acc",
    "enable_kv_cache_reuse",
    "encoder_model_path",
    "exclude_input_in_output",
    "executor_worker_path",
    "gpt_model_path",
    "gpt_model_type",
    "gpu_device_ids",
    "gpu_weights_percent",
    "guided_decoding_backend",
    "iter_stats_max_iterations",
    "kv_cache_free_gpu_mem_fraction",
    "kv_cache_host_memory_bytes",
    "kv_cache_onboard_blocks",
    "lookahead_ngram_size",
    "lookahead_verification_set_size",
    "lookahead_window_size",
    "lora_cache_gpu_memory_fraction",
    "lora_cache_host_memory_bytes",
    "lora_cache_max_adapter_size",
    "lora_cache_optimal_adapter_size",
    "lora_prefetch_dir",
    "max_attention_window_size",
    "max_beam_width",
    "max_tokens_in_paged_kv_cache",
    "medusa_choices",
    "multi_block_mode",
    "normalize_log_probs",
    "num_nodes",
    "participant_ids",
    "recv_poll_period_ms",
    "request_stats_max_iterations",
    "sink_token_length",
    "speculative_decoding_fast_logits",
    "stats_check_period_ms",
    "tokenizer_dir",
    "xgrammar_tokenizer_info_path",
}

# Source: all_models/llmapi/tensorrt_llm/config.pbtxt of TensorRT-LLM's triton_backend, July 2026.
# Left out: inputs for images and LoRA.
LLMAPI_INPUTS = {
    "text_input": Tensor("TYPE_STRING", (-1,)),
    "sampling_param_stop": Tensor("TYPE_STRING", (-1,), is_optional=True),
    **{
        name: Tensor(f"TYPE_{data_type}", (1,), is_optional=True)
        for data_type, names in {
            "BOOL": (
                *("streaming", "stop", "return_finish_reason", "return_stop_reason"),
                *("return_cumulative_logprob", "sampling_param_return_perf_metrics"),
                "sampling_param_exclude_input_from_output",
            ),
            "INT32": (
                *("sampling_param_best_of", "sampling_param_top_k", "sampling_param_max_tokens"),
            ),
            "FP32": (
                *("sampling_param_temperature", "sampling_param_top_p"),
                *("sampling_param_frequency_penalty", "sampling_param_presence_penalty"),
            ),
            "UINT64": ("sampling_param_seed",),
        }.items()
        for name in names
    },
}
LLMAPI_OUTPUTS = {
    "text_output": Tensor("TYPE_STRING", (-1,)),
    "finish_reason": Tensor("TYPE_STRING", (-1,)),
    "stop_reason": Tensor("TYPE_STRING", (-1,)),
    "cumulative_logprob": Tensor("TYPE_FP32", (-1,)),
    "kv_cache_reused_block": Tensor("TYPE_INT32", (-1,)),
    "kv_cache_missed_block": Tensor("TYPE_INT32", (-1,)),
    "kv_cache_alloc_new_blocks": Tensor("TYPE_INT32", (-1,)),
    "kv_cache_alloc_total_blocks": Tensor("TYPE_INT32", (-1,)),
    "kv_cache_hit_rate": Tensor("TYPE_FP32", (-1,)),
    "arrival_time_ns": Tensor("TYPE_INT64", (1,)),
    "first_scheduled_time_ns": Tensor("TYPE_INT64", (1,)),
    "first_token_time_ns": Tensor("TYPE_INT64", (1,)),
    "last_token_time_ns": Tensor("TYPE_INT64", (1,)),
    "acceptance_rate": Tensor("TYPE_FP32", (1,)),
    "total_accepted_draft_tokens": Tensor("TYPE_INT32", (1,)),
    "total_draft_tokens": Tensor("TYPE_INT32", (1,)),
}

# Inputs of the model `specdec`, as in docs/api.md and docs/sampling.md; all are optional.
SPECDEC_INPUTS = {
    "text_input": Tensor("TYPE_STRING", (1,), is_optional=True),
    "messages": Tensor("TYPE_STRING", (1,), is_optional=True),
    "tools": Tensor("TYPE_STRING", (1,), is_optional=True),
    "input_ids": Tensor("TYPE_INT32", (-1,), is_optional=True),
    "add_generation_prompt": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "continue_final_message": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "max_tokens": Tensor("TYPE_INT32", (1,), is_optional=True),
    "min_tokens": Tensor("TYPE_INT32", (1,), is_optional=True),
    "stream": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "temperature": Tensor("TYPE_FP32", (1,), is_optional=True),
    "top_p": Tensor("TYPE_FP32", (1,), is_optional=True),
    "min_p": Tensor("TYPE_FP32", (1,), is_optional=True),
    "top_k": Tensor("TYPE_INT32", (1,), is_optional=True),
    "repetition_penalty": Tensor("TYPE_FP32", (1,), is_optional=True),
    "presence_penalty": Tensor("TYPE_FP32", (1,), is_optional=True),
    "frequency_penalty": Tensor("TYPE_FP32", (1,), is_optional=True),
    "seed": Tensor("TYPE_UINT64", (1,), is_optional=True),
    "random_seed": Tensor("TYPE_UINT64", (1,), is_optional=True),
    "stop_token_ids": Tensor("TYPE_INT32", (-1,), is_optional=True),
    "stop_words": Tensor("TYPE_STRING", (-1,), is_optional=True),
    "bad_words": Tensor("TYPE_STRING", (-1,), is_optional=True),
    "logit_bias": Tensor("TYPE_STRING", (1,), is_optional=True),
    "end_id": Tensor("TYPE_INT32", (1,), is_optional=True),
    "ignore_eos": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "pad_id": Tensor("TYPE_INT32", (1,), is_optional=True),
    "skip_special_tokens": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "return_prompt_token_ids": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "return_log_probs": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "num_top_log_probs": Tensor("TYPE_INT32", (1,), is_optional=True),
    "exclude_input_in_output": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "num_draft_tokens": Tensor("TYPE_INT32", (1,), is_optional=True),
    "drafter": Tensor("TYPE_STRING", (1,), is_optional=True),
    "verification": Tensor("TYPE_STRING", (1,), is_optional=True),
    "task": Tensor("TYPE_STRING", (1,), is_optional=True),
    "tenant": Tensor("TYPE_STRING", (1,), is_optional=True),
    "prediction": Tensor("TYPE_STRING", (1,), is_optional=True),
    "deadline_ms": Tensor("TYPE_INT32", (1,), is_optional=True),
    "return_perf_metrics": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "guided_decoding_guide_type": Tensor("TYPE_STRING", (1,), is_optional=True),
    "guided_decoding_guide": Tensor("TYPE_STRING", (1,), is_optional=True),
}

# Inputs of NVIDIA's models that specdec takes for their clients; its own clients do not send them.
NVIDIAS_INPUTS = {
    "min_length": Tensor("TYPE_INT32", (1,), is_optional=True),
    "beam_width": Tensor("TYPE_INT32", (1,), is_optional=True),
    "num_return_sequences": Tensor("TYPE_INT32", (1,), is_optional=True),
    "length_penalty": Tensor("TYPE_FP32", (1,), is_optional=True),
    "len_penalty": Tensor("TYPE_FP32", (1,), is_optional=True),
    "early_stopping": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "return_context_logits": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "return_generation_logits": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "return_num_input_tokens": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "return_num_output_tokens": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "return_finish_reason": Tensor("TYPE_BOOL", (1,), is_optional=True),
    "lora_task_id": Tensor("TYPE_UINT64", (1,), is_optional=True),
}

SPECDEC_OUTPUTS = {
    "text_output": Tensor("TYPE_STRING", (1,)),
    "output_ids": Tensor("TYPE_INT32", (-1,)),
    "output_sources": Tensor("TYPE_INT32", (-1,)),
    "output_log_probs": Tensor("TYPE_FP32", (-1,)),
    "output_token_bytes": Tensor("TYPE_STRING", (-1,)),
    "top_ids": Tensor("TYPE_INT32", (-1,)),
    "top_log_probs": Tensor("TYPE_FP32", (-1,)),
    "top_token_bytes": Tensor("TYPE_STRING", (-1,)),
    "prompt_token_ids": Tensor("TYPE_INT32", (-1,)),
    "finish_reason": Tensor("TYPE_STRING", (1,)),
    "num_input_tokens": Tensor("TYPE_INT32", (1,)),
    "num_output_tokens": Tensor("TYPE_INT32", (1,)),
    "seed": Tensor("TYPE_UINT64", (1,)),
    "verification": Tensor("TYPE_STRING", (1,)),
    "total_draft_tokens": Tensor("TYPE_INT32", (1,)),
    "total_accepted_draft_tokens": Tensor("TYPE_INT32", (1,)),
    "acceptance_rate": Tensor("TYPE_FP32", (1,)),
    "accepted_prediction_tokens": Tensor("TYPE_INT32", (1,)),
    "rejected_prediction_tokens": Tensor("TYPE_INT32", (1,)),
    "speculative_decoding": Tensor("TYPE_STRING", (1,)),
}

COUNTERS = {
    "specdec_requests_total",
    "specdec_shed_total",
    "specdec_prompt_tokens_total",
    "specdec_generation_tokens_total",
    "specdec_num_drafts_total",
    "specdec_num_draft_tokens_total",
    "specdec_num_accepted_tokens_total",
    "specdec_num_accepted_tokens_per_pos_total",
    "specdec_draft_failures_total",
    "specdec_speculation_switches_total",
}
GAUGES = {
    "specdec_inflight_requests",
    "specdec_inflight_limit",
    "specdec_waiting_requests",
    "specdec_kv_cache_usage",
    "specdec_draft_stale",
    "specdec_acceptance_alpha",
    "specdec_draft_tokens_k",
    "specdec_speculation_enabled",
    "specdec_estimated_speedup",
    "specdec_measured_speedup",
    "specdec_measured_speedup_low",
    "specdec_measured_speedup_high",
}
HISTOGRAMS = {
    "specdec_time_to_first_token_seconds",
    "specdec_inter_token_latency_seconds",
    "specdec_e2e_request_latency_seconds",
    "specdec_target_step_seconds",
    "specdec_draft_step_seconds",
}

ERROR_TYPES = {
    "invalid_request": "INVALID_ARG",
    "unsupported": "UNSUPPORTED",
    "overloaded": "UNAVAILABLE",
    "shutting_down": "UNAVAILABLE",
    "deadline_exceeded": "UNAVAILABLE",
    "engine_failed": "UNAVAILABLE",
    "draft_timeout": "UNAVAILABLE",
    "cancelled": "CANCELLED",
    "configuration": "INTERNAL",
    "internal": "INTERNAL",
}

MAKE_TARGETS = ("demo", "test", "serve", "bench", "check")
SPECDEC_COMMANDS = (
    *("serve", "build", "chat", "generate", "load"),
    *("plan", "evaluate", "report", "bench"),
)
PORT_VARIABLES = ("HTTP_PORT", "GRPC_PORT", "METRICS_PORT", "HEALTH_PORT", "OPENAI_PORT")
