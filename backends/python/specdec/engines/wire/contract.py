"""The names of the tensors with which engines are called.

They are those of NVIDIA's `tensorrtllm` backend, and a few of our own, marked "Ours". Elsewhere
these tensors are called "the contract". Orchestrator and engines both use this file.

Source: all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt of tensorrtllm_backend v0.19.0.
NVIDIA does not change the names; tests/contract compares them with our config.pbtxt files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

INPUT_IDS = "input_ids"
INPUT_LENGTHS = "input_lengths"
REQUEST_OUTPUT_LEN = "request_output_len"
DRAFT_INPUT_IDS = "draft_input_ids"
END_ID = "end_id"
PAD_ID = "pad_id"  # as in NVIDIA's backend, but without effect: one sequence needs no padding
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
GUIDE_TYPE = "guided_decoding_guide_type"
GUIDE = "guided_decoding_guide"
RETURN_LOG_PROBS = "return_log_probs"
STREAMING = "streaming"
STOP = "stop"
EXCLUDE_INPUT_IN_OUTPUT = "exclude_input_in_output"
RETURN_PERF_METRICS = "return_perf_metrics"

ARRIVAL_TIME_NS = "arrival_time_ns"
LAST_TOKEN_TIME_NS = "last_token_time_ns"

MIN_TOKENS = "min_tokens"
"""Name of min_length from release 0.20 on; our engines take both."""
SEED = "seed"
"""Name of random_seed from release 0.20 on; our engines take both."""

DRAFT_LOGITS = "draft_logits"
RETURN_GENERATION_LOGITS = "return_generation_logits"
GENERATION_LOGITS = "generation_logits"
TOTAL_DRAFT_TOKENS = "total_draft_tokens"
TOTAL_ACCEPTED_DRAFT_TOKENS = "total_accepted_draft_tokens"

MIN_P = "min_p"
"""Ours: truncation by min-p."""
PROMPT_LENGTH = "prompt_length"
"""Ours: number of tokens at the beginning of input_ids that are prompt, not output."""
VERIFICATION = "verification"
"""Ours: verification mode; without it, that of NVIDIA's backend."""
DRAFT_PARENTS = "draft_parents"
"""Ours: for a tree, index of each draft token's parent, or -1 if it follows the context."""

BAD_TEXTS = "bad_texts"
"""Ours: texts that the output must not contain, whichever tokens spell them."""

NUM_TOP_LOG_PROBS = "num_top_log_probs"
"""Ours, with return_log_probs: number of most likely tokens to return at each position."""
TOP_IDS, TOP_LOG_PROBS = "top_ids", "top_log_probs"
"""Ours: these tokens and their log-probabilities, position after position."""

CACHE_SALT = "cache_salt"
"""Ours: salt of the prefix cache; only calls with the same salt share prefixes (vLLM's name)."""

NUM_NEXT_DRAFTS = "num_next_drafts"
"""Ours, for targets with a head: number of draft tokens that the head is to return with the answer.
With 0 the head reads along: it processes the tokens without drafting."""
NEXT_DRAFT_IDS = "next_draft_ids"
"""Ours: draft tokens of the head, which follow the answer's last token."""
NEXT_DRAFT_DEPTH = "next_draft_depth"
"""Ours: greatest depth of the tree that the head is to return; without it, a chain. A tree's tokens
are sorted by depth."""
NEXT_DRAFT_PARENTS = "next_draft_parents"
"""Ours: parents of next_draft_ids, as in draft_parents; empty for a chain."""

RECEIPT_ADDRESS = "receipt_address"
"""Ours: address for the receipts of a streamed call. If a caller asks for this output, each
response is sent only after the receipt of the previous one (receipts.py)."""

DRAFTING = "drafting"
"""Ours, for targets with our drafters inside: the request's drafting options as JSON
(batch_drafting/options.py)."""
ROW_LENGTHS = "row_lengths"
"""Ours, for draft models: lengths of several contexts, which input_ids has one after another. The
response has a row for each in output_ids, and its length in sequence_length."""
ROW_CACHE_SALTS = "row_cache_salts"
"""Ours, with row_lengths: the cache_salt of each context."""
DRAFTING_REPORT = "drafting_report"
"""Ours: JSON with the rounds of a response (round_records.py) and, in the last response, with the
controller's report on the request's task."""

OUTPUT_LOG_PROBS = "output_log_probs"
CUM_LOG_PROBS = "cum_log_probs"

OUTPUT_IDS = "output_ids"
SEQUENCE_LENGTH = "sequence_length"
REQUIRED_OUTPUTS = (OUTPUT_IDS, SEQUENCE_LENGTH)
"""Outputs without which NVIDIA's backend throws (model_instance_state.cc:1089, :1102)."""


def word_list(words: Sequence[Sequence[int]]) -> npt.NDArray[np.int32]:
    """Return the words as the [2, n] int32 array that `bad_words_list` takes.

    Row 0 has the tokens of all words one after another. Row 1 has the index after the last token of
    each word. The shorter row is padded with -1. Source: to_word_list_format in the preprocessing
    model of tensorrtllm_backend.
    """
    tokens = [token for word in words for token in word]
    ends = np.cumsum([len(word) for word in words]).tolist()
    size = max(len(tokens), len(ends))
    rows = [row + [-1] * (size - len(row)) for row in (tokens, ends)]
    return np.asarray(rows, dtype=np.int32)


def values_of(array: npt.NDArray[Any] | None) -> tuple[Any, ...]:
    """Return the values of an output as Python objects; () for None, an output that is missing."""
    return () if array is None else tuple(array.ravel().tolist())


def words_of(array: npt.NDArray[np.int32]) -> tuple[tuple[int, ...], ...]:
    """Return the words of an array from `word_list`.

    Raise ValueError if the array does not have two rows, or if the ends do not rise within the
    tokens.
    """
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
