"""The tensors of NVIDIA's `tensorrtllm` backend, as far as both sides here use them.

Source: all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt of tensorrtllm_backend v0.19.0.
The names are frozen upstream; tests/contract holds them against our config.pbtxt files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

INPUT_IDS = "input_ids"
INPUT_LENGTHS = "input_lengths"
REQUEST_OUTPUT_LEN = "request_output_len"
DRAFT_INPUT_IDS = "draft_input_ids"
END_ID = "end_id"
PAD_ID = "pad_id"  # taken as upstream takes it; one sequence needs no padding
TEMPERATURE = "temperature"
RUNTIME_TOP_K = "runtime_top_k"
RUNTIME_TOP_P = "runtime_top_p"
REPETITION_PENALTY = "repetition_penalty"
PRESENCE_PENALTY = "presence_penalty"
FREQUENCY_PENALTY = "frequency_penalty"
MIN_LENGTH = "min_length"
RANDOM_SEED = "random_seed"
BAD_WORDS_LIST = "bad_words_list"
EMBEDDING_BIAS = "embedding_bias"
RETURN_LOG_PROBS = "return_log_probs"
STREAMING = "streaming"
STOP = "stop"
EXCLUDE_INPUT_IN_OUTPUT = "exclude_input_in_output"
RETURN_PERF_METRICS = "return_perf_metrics"

ARRIVAL_TIME_NS = "arrival_time_ns"
LAST_TOKEN_TIME_NS = "last_token_time_ns"

MIN_TOKENS = "min_tokens"
SEED = "seed"
"""What releases from 0.20 on call min_length and random_seed; engines here take either."""

DRAFT_LOGITS = "draft_logits"
RETURN_GENERATION_LOGITS = "return_generation_logits"
GENERATION_LOGITS = "generation_logits"
TOTAL_DRAFT_TOKENS = "total_draft_tokens"
TOTAL_ACCEPTED_DRAFT_TOKENS = "total_accepted_draft_tokens"

MIN_P = "min_p"
PROMPT_LENGTH = "prompt_length"
VERIFICATION = "verification"
DRAFT_PARENTS = "draft_parents"
"""Ours, for engines that say so: truncation by min-p, how much of input_ids is no output, a rule
of verification other than the backend's own, and a tree of drafts instead of a chain."""

BAD_TEXTS = "bad_texts"
"""Ours: texts that the output must not contain, in whatever tokens they could be spelt."""

CACHE_SALT = "cache_salt"
"""Ours: prefixes in the KV cache are shared only between calls with the same salt (vLLM's name)."""

NUM_NEXT_DRAFTS = "num_next_drafts"
NEXT_DRAFT_IDS = "next_draft_ids"
NEXT_DRAFT_DEPTH = "next_draft_depth"
NEXT_DRAFT_PARENTS = "next_draft_parents"
"""Ours, for targets with a drafting head: how many guesses are to come with the answer (0 lets the
head read along), and the guesses, which follow the answer's last token. With a depth they are a
tree, depth by depth, in which no more than so many follow each other; its parents are those that
draft_parents takes, and none where it is a chain."""

RECEIPT_ADDRESS = "receipt_address"
"""Ours: whoever asks for this output of a streamed call gets the next response after a receipt for
the last (receipts.py), which it sends there."""

OUTPUT_LOG_PROBS = "output_log_probs"
CUM_LOG_PROBS = "cum_log_probs"

OUTPUT_IDS = "output_ids"
SEQUENCE_LENGTH = "sequence_length"
REQUIRED_OUTPUTS = (OUTPUT_IDS, SEQUENCE_LENGTH)
"""The backend throws when a request asks for less (model_instance_state.cc:1089, :1102)."""


def word_list(words: Sequence[Sequence[int]]) -> npt.NDArray[np.int32]:
    """[2, n] int32: the words' tokens one after another, and where each word ends; padded by -1.

    Source: to_word_list_format in the preprocessing model of tensorrtllm_backend.
    """
    tokens = [token for word in words for token in word]
    ends = np.cumsum([len(word) for word in words]).tolist()
    size = max(len(tokens), len(ends))
    rows = [row + [-1] * (size - len(row)) for row in (tokens, ends)]
    return np.asarray(rows, dtype=np.int32)


def words_of(array: npt.NDArray[np.int32]) -> tuple[tuple[int, ...], ...]:
    """The inverse of `word_list`. Raises ValueError for offsets that are none."""
    tokens, ends = array.tolist()
    words, start = [], 0
    for end in ends:
        if end < 0:
            break
        if not start < end <= len(tokens):
            raise ValueError(f"word ends {ends} do not rise within {len(tokens)} tokens")
        words.append(tuple(tokens[start:end]))
        start = end
    return tuple(words)
