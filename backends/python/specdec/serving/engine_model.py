"""The torch engine as a Triton model that speaks the `tensorrtllm` contract."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from specdec.engines import contract
from specdec.engines.engine_call import EngineCall, parse_call
from specdec.errors import SpecdecError
from specdec.serving.engine_settings import EngineModelSettings
from specdec.serving.outbox import Outbox
from specdec.serving.parameters import read_parameters
from specdec.serving.triton_tensors import FINAL, error_response, input_arrays, response
from specdec.torch_engine.engine import TorchEngine
from specdec.torch_engine.task import TaskOutput, TaskStats


class TritonPythonModel:
    """Hands requests to the engine and its outputs back."""

    def initialize(self, args: Mapping[str, str]) -> None:
        config = json.loads(args["model_config"])
        settings = read_parameters(EngineModelSettings, config)
        try:
            self._engine = TorchEngine(settings.engine_settings(Path(pb_utils.get_model_dir())))
        except SpecdecError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        self._outbox = Outbox()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                outputs = frozenset(request.requested_output_names())
                self._start(
                    parse_call(request.request_id(), input_arrays(request), outputs), sender
                )
            except Exception as error:  # noqa: BLE001 - the caller gets it
                if not isinstance(error, SpecdecError):
                    pb_utils.Logger.log_error(f"[specdec engine] {error!r}")
                sender.send(error_response(error), flags=FINAL)

    def finalize(self) -> None:
        self._engine.close()
        self._outbox.close()

    def _start(self, call: EngineCall, sender: Any) -> None:
        if call.stop:
            self._engine.cancel(call.task.request_id)
            sender.send(flags=FINAL)
            return
        collected: list[int] = [] if call.exclude_input else call.task.input_ids.tolist()
        log_probs: list[float] = []
        logits: list[npt.NDArray[np.float32]] = []

        def receive(output: TaskOutput) -> None:
            if output.error is not None:
                error = output.error
                self._outbox.put(lambda: sender.send(error_response(error), flags=FINAL))
                return
            collected.extend(output.tokens)
            log_probs.extend(output.log_probs)
            logits.extend(output.logits)
            if not call.streaming and not output.is_final:
                return
            outputs = token_outputs(collected)
            extra: dict[str, npt.NDArray[Any]] = {}
            if call.task.wants_log_probs:
                extra |= log_prob_outputs(log_probs)
            if logits:
                extra[contract.GENERATION_LOGITS] = np.stack(logits)[None]
            if call.task.num_next:
                extra |= next_draft_outputs(output.next_drafts)
            if output.stats is not None and call.return_perf_metrics:
                extra |= perf_outputs(output.stats)
            outputs |= {k: v for k, v in extra.items() if k in call.requested_outputs}
            collected.clear()
            log_probs.clear()
            logits.clear()
            flags = FINAL if output.is_final else 0
            self._outbox.put(lambda: sender.send(response(outputs), flags=flags))

        self._engine.submit(call.task, receive)


def token_outputs(tokens: list[int]) -> dict[str, npt.NDArray[Any]]:
    """output_ids [beams = 1, n] and sequence_length [1], without the batch dimension."""
    return {
        contract.OUTPUT_IDS: np.asarray([tokens], dtype=np.int32),
        contract.SEQUENCE_LENGTH: np.asarray([len(tokens)], dtype=np.int32),
    }


def log_prob_outputs(log_probs: list[float]) -> dict[str, npt.NDArray[Any]]:
    """output_log_probs [beams = 1, n] and their sum, cum_log_probs [1], of one response."""
    return {
        contract.OUTPUT_LOG_PROBS: np.asarray([log_probs], dtype=np.float32),
        contract.CUM_LOG_PROBS: np.asarray([sum(log_probs)], dtype=np.float32),
    }


def next_draft_outputs(guesses: tuple[int, ...]) -> dict[str, npt.NDArray[Any]]:
    """next_draft_ids [1, n]: what the drafting head guesses behind the last token."""
    return {contract.NEXT_DRAFT_IDS: np.asarray([guesses], dtype=np.int32)}


def perf_outputs(stats: TaskStats) -> dict[str, npt.NDArray[Any]]:
    """The tensors of return_perf_metrics, of this one call; times in nanoseconds."""
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
