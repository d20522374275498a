"""The torch engine as a Triton model that speaks the `tensorrtllm` contract."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from specdec.engines import contract
from specdec.errors import InvalidRequestError, SpecdecError, UnsupportedError
from specdec.serving.outbox import Outbox
from specdec.serving.parameters import read_parameters
from specdec.serving.triton_tensors import FINAL, error_response, input_arrays, response
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.engine import EngineSettings, TorchEngine
from specdec.torch_engine.scheduler import NO_TOKENS, Task, TaskOutput, TaskStats


@dataclass(frozen=True, slots=True)
class EngineModelSettings:
    """Parameters of an engine model's config.pbtxt."""

    checkpoint_dir: str
    """Relative paths start at the model's version directory."""
    device: str = "auto"
    dtype: str = "bfloat16"
    num_threads: int = 0
    max_seq_len: int = 8192
    max_draft_len: int = 16
    max_num_tokens: int = 512
    max_num_sequences: int = 64
    max_tokens_in_paged_kv_cache: int = 65536

    def engine_settings(self, version_directory: Path) -> EngineSettings:
        limits = EngineLimits(
            max_seq_len=self.max_seq_len,
            max_draft_len=self.max_draft_len,
            max_num_tokens=self.max_num_tokens,
            max_num_sequences=self.max_num_sequences,
            num_cache_tokens=self.max_tokens_in_paged_kv_cache,
        )
        checkpoint = version_directory / self.checkpoint_dir
        return EngineSettings(checkpoint, limits, self.device, self.dtype, self.num_threads)


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One request to the engine: a task, or the order to stop one."""

    task: Task
    stop: bool
    streaming: bool
    exclude_input: bool
    return_perf_metrics: bool
    requested_outputs: frozenset[str]


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
                self._start(parse_call(request), sender)
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

        def receive(output: TaskOutput) -> None:
            if output.error is not None:
                error = output.error
                self._outbox.put(lambda: sender.send(error_response(error), flags=FINAL))
                return
            collected.extend(output.tokens)
            if not call.streaming and not output.is_final:
                return
            outputs = token_outputs(collected)
            collected.clear()
            if output.stats is not None and call.return_perf_metrics:
                measured = perf_outputs(output.stats).items()
                outputs |= {k: v for k, v in measured if k in call.requested_outputs}
            flags = FINAL if output.is_final else 0
            self._outbox.put(lambda: sender.send(response(outputs), flags=flags))

        self._engine.submit(call.task, receive)


def parse_call(request: Any) -> EngineCall:
    """Raises InvalidRequestError, UnsupportedError; refuses what the C++ backend refuses."""
    arrays = input_arrays(request)

    def scalar(name: str, default: Any) -> Any:
        return arrays[name].ravel()[0].item() if name in arrays else default

    requested_outputs = frozenset(request.requested_output_names())
    missing = set(contract.REQUIRED_OUTPUTS) - requested_outputs
    if missing:
        raise InvalidRequestError(f"the outputs {sorted(missing)} must be requested")
    stop = scalar(contract.STOP, False)
    if stop and not request.request_id():
        raise InvalidRequestError("a stop request needs the id of the request to stop")
    if contract.DRAFT_INPUT_IDS in arrays and not arrays[contract.DRAFT_INPUT_IDS].size:
        raise InvalidRequestError("draft_input_ids is empty; leave it out to verify no draft")
    top_k = scalar(contract.RUNTIME_TOP_K, 1)
    if top_k != 1:
        raise UnsupportedError(f"this engine is greedy: runtime_top_k must be 1; given {top_k}")
    input_ids = arrays.get(contract.INPUT_IDS, NO_TOKENS).ravel()
    num_input, num_output = (
        scalar(contract.INPUT_LENGTHS, 0),
        scalar(contract.REQUEST_OUTPUT_LEN, 0),
    )
    if not stop:
        if num_input != len(input_ids):
            raise InvalidRequestError(
                f"input_lengths is {num_input}, input_ids has {len(input_ids)} tokens"
            )
        if num_output < 1:
            raise InvalidRequestError(f"request_output_len must be at least 1; given {num_output}")
    end_id = scalar(contract.END_ID, -1)
    return EngineCall(
        task=Task(
            request_id=request.request_id(),
            input_ids=input_ids,
            max_new_tokens=num_output,
            draft_ids=arrays.get(contract.DRAFT_INPUT_IDS, NO_TOKENS).ravel(),
            end_id=None if end_id < 0 else end_id,
        ),
        stop=stop,
        streaming=scalar(contract.STREAMING, False),
        exclude_input=scalar(contract.EXCLUDE_INPUT_IN_OUTPUT, False),
        return_perf_metrics=scalar(contract.RETURN_PERF_METRICS, False),
        requested_outputs=requested_outputs,
    )


def token_outputs(tokens: list[int]) -> dict[str, npt.NDArray[Any]]:
    """output_ids [beams = 1, n] and sequence_length [1], without the batch dimension."""
    return {
        contract.OUTPUT_IDS: np.asarray([tokens], dtype=np.int32),
        contract.SEQUENCE_LENGTH: np.asarray([len(tokens)], dtype=np.int32),
    }


def perf_outputs(stats: TaskStats) -> dict[str, npt.NDArray[Any]]:
    """The tensors of return_perf_metrics, of this one call; times in nanoseconds."""
    num_drafted, num_accepted = stats.num_draft_tokens, stats.num_accepted_tokens
    ints = {
        "kv_cache_reused_blocks": stats.num_reused_blocks,
        "kv_cache_alloc_new_blocks": stats.num_new_blocks,
        "kv_cache_alloc_total_blocks": stats.num_reused_blocks + stats.num_new_blocks,
        "total_accepted_draft_tokens": num_accepted,
        "total_draft_tokens": num_drafted,
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
