"""The tensors of NVIDIA's `tensorrtllm` backend, as far as both sides here use them.

Source: all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt of tensorrtllm_backend v0.19.0.
The names are frozen upstream; tests/contract holds them against our config.pbtxt files.
"""

from __future__ import annotations

INPUT_IDS = "input_ids"
INPUT_LENGTHS = "input_lengths"
REQUEST_OUTPUT_LEN = "request_output_len"
DRAFT_INPUT_IDS = "draft_input_ids"
END_ID = "end_id"
PAD_ID = "pad_id"  # taken as upstream takes it; one sequence needs no padding
RUNTIME_TOP_K = "runtime_top_k"
STREAMING = "streaming"
STOP = "stop"
EXCLUDE_INPUT_IN_OUTPUT = "exclude_input_in_output"
RETURN_PERF_METRICS = "return_perf_metrics"

ARRIVAL_TIME_NS = "arrival_time_ns"
LAST_TOKEN_TIME_NS = "last_token_time_ns"

OUTPUT_IDS = "output_ids"
SEQUENCE_LENGTH = "sequence_length"
REQUIRED_OUTPUTS = (OUTPUT_IDS, SEQUENCE_LENGTH)
"""The backend throws when a request asks for less (model_instance_state.cc:1089, :1102)."""
