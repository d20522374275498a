"""Send an engine's answer to one call, in the tensors of NVIDIA's `tensorrtllm` backend."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.engines.wire import contract
from specdec.engines.wire.engine_call import EngineCall
from specdec.engines.wire.receipts import ReceiptDesk, receipt_outputs
from specdec.torch_engine.scheduling.failures import failure_of
from specdec.torch_engine.task import TaskOutput, TaskStats
from specdec.triton_backend.outbox import Outbox
from specdec.triton_backend.tensors import error_response, response


class Reply:
    """The answer to one call; sends its task's outputs as they come, or together at the end.

    A reader that gives receipts gets the next response only after it has read the previous one.
    That response has all outputs since then.
    """

    def __init__(self, call: EngineCall, sender: Any, outbox: Outbox, desk: ReceiptDesk) -> None:
        self._call = call
        self._sender = sender
        self._outbox = outbox
        self._desk = desk
        self._gives_receipts = call.streaming and contract.RECEIPT_ADDRESS in call.requested_outputs
        self._lock = threading.Lock()
        self._is_unread = False
        self._tokens: list[int] = [] if call.exclude_input else call.task.input_ids.tolist()
        self._log_probs: list[float] = []
        self._logits: list[npt.NDArray[np.float32]] = []
        self._waiting: TaskOutput | None = None
        """Newest unsent output; None if everything was sent."""

    def add(self, output: TaskOutput) -> None:
        """Take the task's next output on the engine's thread; queue a response if one is due."""
        with self._lock:
            self._tokens += output.tokens
            self._log_probs += output.log_probs
            self._logits += output.logits
            if self._call.streaming or output.is_final:
                self._waiting = output
                self._send()

    def _go_on(self) -> None:
        with self._lock:
            self._is_unread = False
            self._send()

    def _send(self) -> None:
        output = self._waiting
        if output is None or self._is_unread:
            return
        self._waiting = None
        if output.error is not None:
            error = output.error
            self._outbox.put_last(self._sender, lambda: error_response(error))
            return
        try:
            outputs = self._outputs(output)
        except Exception as error:  # noqa: BLE001 - the caller waits for an answer
            failure = failure_of("making a response", error)
            self._outbox.put_last(self._sender, lambda: error_response(failure))
            return
        if output.is_final:
            self._outbox.put_last(self._sender, lambda: response(outputs))
            return
        if self._gives_receipts:
            self._is_unread = True
            outputs |= receipt_outputs(self._desk.expect(self._go_on))
        self._outbox.put(lambda: self._sender.send(response(outputs)))

    def _outputs(self, output: TaskOutput) -> dict[str, npt.NDArray[Any]]:
        call = self._call
        outputs = token_outputs(self._tokens)
        extra: dict[str, npt.NDArray[Any]] = {}
        if call.task.wants_log_probs:
            extra |= log_prob_outputs(self._log_probs)
        if self._logits:
            extra[contract.GENERATION_LOGITS] = np.stack(self._logits)[None]
        if call.task.num_next:
            extra |= next_draft_outputs(output.next_drafts, output.next_parents)
        if output.stats is not None and call.return_perf_metrics:
            extra |= perf_outputs(output.stats)
        self._tokens, self._log_probs, self._logits = [], [], []
        return outputs | {k: v for k, v in extra.items() if k in call.requested_outputs}


def token_outputs(tokens: list[int]) -> dict[str, npt.NDArray[Any]]:
    """Return output_ids [beams = 1, n] and sequence_length [1], int32, without batch dimension."""
    return {
        contract.OUTPUT_IDS: np.asarray([tokens], dtype=np.int32),
        contract.SEQUENCE_LENGTH: np.asarray([len(tokens)], dtype=np.int32),
    }


def log_prob_outputs(log_probs: list[float]) -> dict[str, npt.NDArray[Any]]:
    """Return output_log_probs [beams = 1, n] of one response and their sum, cum_log_probs [1]."""
    return {
        contract.OUTPUT_LOG_PROBS: np.asarray([log_probs], dtype=np.float32),
        contract.CUM_LOG_PROBS: np.asarray([sum(log_probs)], dtype=np.float32),
    }


def next_draft_outputs(
    drafts: tuple[int, ...], parents: tuple[int, ...]
) -> dict[str, npt.NDArray[Any]]:
    """Return the head's draft tokens: next_draft_ids [1, n] and next_draft_parents [1, n], int32.

    For a chain, next_draft_parents is empty: [1, 0].
    """
    return {
        contract.NEXT_DRAFT_IDS: np.asarray([drafts], dtype=np.int32),
        contract.NEXT_DRAFT_PARENTS: np.asarray([parents], dtype=np.int32),
    }


def perf_outputs(stats: TaskStats) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors that return_perf_metrics asks for, for one call; times in nanoseconds."""
    num_drafted, num_accepted = stats.num_draft_tokens, stats.num_accepted_tokens
    ints = {
        "kv_cache_reused_blocks": stats.num_reused_blocks,
        "kv_cache_alloc_new_blocks": stats.num_new_blocks,
        "kv_cache_alloc_total_blocks": stats.num_reused_blocks + stats.num_new_blocks,
        contract.TOTAL_ACCEPTED_DRAFT_TOKENS: num_accepted,
        contract.TOTAL_DRAFT_TOKENS: num_drafted,
    }
    times = {
        contract.ARRIVAL_TIME_NS: stats.arrival_ns,
        "first_scheduled_time_ns": stats.first_scheduled_ns,
        "first_token_time_ns": stats.first_token_ns,
        contract.LAST_TOKEN_TIME_NS: stats.last_token_ns,
    }
    rate = num_accepted / num_drafted if num_drafted else 0.0
    return {
        **{name: np.asarray([value], dtype=np.int32) for name, value in ints.items()},
        **{name: np.asarray([value], dtype=np.int64) for name, value in times.items()},
        "acceptance_rate": np.asarray([rate], dtype=np.float32),
    }
