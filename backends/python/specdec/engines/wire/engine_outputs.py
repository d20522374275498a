"""Builds the output arrays of an engine's responses, without batch dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.engines.wire import contract
from specdec.engines.wire.engine_call import EngineCall
from specdec.round_records import DraftingReport, RoundRecord
from specdec.token_ids import TopLogProbs
from specdec.torch_engine.task import TaskOutput, TaskStats

Outputs = dict[str, npt.NDArray[Any]]


class UnsentOutputs:
    """The outputs of a call's task that no response has yet."""

    def __init__(self, call: EngineCall) -> None:
        self._call = call
        self._tokens: list[int] = [] if call.exclude_input else call.task.input_ids.tolist()
        self._log_probs: list[float] = []
        self._top_log_probs: list[TopLogProbs] = []
        self._logits: list[npt.NDArray[np.float32]] = []
        self._rounds: list[RoundRecord] = []
        self._newest: TaskOutput | None = None

    def add(self, output: TaskOutput) -> None:
        self._tokens += output.tokens
        self._log_probs += output.log_probs
        self._top_log_probs += output.top_log_probs
        self._logits += output.logits
        if output.drafting is not None:
            self._rounds += output.drafting.rounds
        self._newest = output

    def take(self) -> Outputs:
        """Return the arrays of one response with everything unsent, and forget it."""
        call, newest = self._call, self._newest
        assert newest is not None
        extra: Outputs = {}
        if call.task.wants_log_probs:
            extra |= log_prob_outputs(self._log_probs)
        if call.task.num_top_log_probs:
            extra |= top_log_prob_outputs(self._top_log_probs)
        if self._logits:
            extra |= logits_outputs(self._logits)
        if call.task.num_next:
            extra |= next_draft_outputs(newest.next_drafts, newest.next_parents)
        if newest.drafting is not None:
            extra |= drafting_outputs(replace(newest.drafting, rounds=tuple(self._rounds)))
            self._rounds = []
        if newest.stats is not None and call.return_perf_metrics:
            extra |= perf_outputs(newest.stats)
        outputs = token_outputs(self._tokens)
        self._tokens, self._log_probs, self._logits, self._top_log_probs = [], [], [], []
        return outputs | {k: v for k, v in extra.items() if k in call.requested_outputs}


def token_outputs(tokens: list[int]) -> Outputs:
    """Return output_ids [beams = 1, n] and sequence_length [1], int32."""
    return {
        contract.OUTPUT_IDS: np.asarray([tokens], dtype=np.int32),
        contract.SEQUENCE_LENGTH: np.asarray([len(tokens)], dtype=np.int32),
    }


def row_outputs(rows: Sequence[Sequence[int]]) -> Outputs:
    """Return output_ids [rows, longest], padded with 0, and sequence_length [rows], int32."""
    ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int32)
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens)] = tokens
    lengths = np.asarray([len(tokens) for tokens in rows], dtype=np.int32)
    return {contract.OUTPUT_IDS: ids, contract.SEQUENCE_LENGTH: lengths}


def log_prob_outputs(log_probs: list[float]) -> Outputs:
    """Return output_log_probs [beams = 1, n] of one response and their sum, cum_log_probs [1]."""
    return {
        contract.OUTPUT_LOG_PROBS: np.asarray([log_probs], dtype=np.float32),
        contract.CUM_LOG_PROBS: np.asarray([sum(log_probs)], dtype=np.float32),
    }


def top_log_prob_outputs(top_log_probs: Sequence[TopLogProbs]) -> Outputs:
    """Return top_ids int32 and top_log_probs float32, [1, n · k]: the k likeliest of n tokens."""
    pairs = [pair for position in top_log_probs for pair in position]
    return {
        contract.TOP_IDS: np.asarray([[token for token, _ in pairs]], dtype=np.int32),
        contract.TOP_LOG_PROBS: np.asarray([[value for _, value in pairs]], dtype=np.float32),
    }


def logits_outputs(logits: list[npt.NDArray[np.float32]]) -> Outputs:
    """Return generation_logits [beams = 1, n, vocab] float32 for n ≥ 1 rows of logits."""
    return {contract.GENERATION_LOGITS: np.stack(logits)[None]}


def next_draft_outputs(draft_tokens: tuple[int, ...], parents: tuple[int, ...]) -> Outputs:
    """Return the head's draft tokens: next_draft_ids [1, n] and next_draft_parents [1, n], int32.

    For a chain, next_draft_parents is empty: [1, 0].
    """
    return {
        contract.NEXT_DRAFT_IDS: np.asarray([draft_tokens], dtype=np.int32),
        contract.NEXT_DRAFT_PARENTS: np.asarray([parents], dtype=np.int32),
    }


def drafting_outputs(report: DraftingReport) -> Outputs:
    """Return drafting_report [1]: the rounds of one response as JSON."""
    text = report.to_text().encode()
    return {contract.DRAFTING_REPORT: np.asarray([text], dtype=np.object_)}


def perf_outputs(stats: TaskStats) -> Outputs:
    """Return the tensors that return_perf_metrics asks for, for one call; times in nanoseconds."""
    num_draft_tokens, num_accepted = stats.num_draft_tokens, stats.num_accepted_tokens
    ints = {
        "kv_cache_reused_blocks": stats.num_reused_blocks,
        "kv_cache_alloc_new_blocks": stats.num_new_blocks,
        "kv_cache_alloc_total_blocks": stats.num_reused_blocks + stats.num_new_blocks,
        contract.TOTAL_ACCEPTED_DRAFT_TOKENS: num_accepted,
        contract.TOTAL_DRAFT_TOKENS: num_draft_tokens,
    }
    times = {
        contract.ARRIVAL_TIME_NS: stats.arrival_ns,
        "first_scheduled_time_ns": stats.first_scheduled_ns,
        "first_token_time_ns": stats.first_token_ns,
        contract.LAST_TOKEN_TIME_NS: stats.last_token_ns,
    }
    rate = num_accepted / num_draft_tokens if num_draft_tokens else 0.0
    return {
        **{name: np.asarray([value], dtype=np.int32) for name, value in ints.items()},
        **{name: np.asarray([value], dtype=np.int64) for name, value in times.items()},
        "acceptance_rate": np.asarray([rate], dtype=np.float32),
    }
