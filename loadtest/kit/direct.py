"""Calls the model `target` directly over gRPC: the answer without our orchestrator."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt
import tritonclient.grpc as triton
from tritonclient.utils import np_to_triton_dtype

from specdec.acceptance.sampling import SamplingParams
from specdec.engines.wire import contract
from specdec.engines.wire.sampling_inputs import Sampling, sampling_inputs
from specdec.loadtest.kit.arms import GREEDY, Case


@dataclass(frozen=True, slots=True)
class DirectAnswer:
    """The tokens of one call, with the times of the first and last ones in seconds."""

    tokens: tuple[int, ...]
    first_s: float
    last_s: float
    log_probs: tuple[float, ...] = ()
    """Log-probabilities of the tokens; empty unless requested."""


class DirectTarget:
    """Streams from an engine model by the `tensorrtllm` contract, one call at a time."""

    def __init__(self, grpc_url: str, model: str = "target") -> None:
        self._client = triton.InferenceServerClient(grpc_url)
        self._model = model
        self._numbers = itertools.count()
        self._responses: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        self._client.start_stream(lambda result, error: self._responses.put((result, error)))

    def generate(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        end_id: int,
        case: Case = GREEDY,
        seed: int = 1,
        *,
        wants_log_probs: bool = False,
    ) -> DirectAnswer:
        """Return the answer. Raises RuntimeError with the engine's text if it refuses."""
        # The shared sampler draws as the orchestrator's requests do, with this very seed.
        sampling = Sampling(
            SamplingParams(case.temperature, top_p=case.top_p, seed=seed),
            len(prompt),
            wants_log_probs=wants_log_probs,
            has_shared_sampler=True,
        )
        names = list(contract.REQUIRED_OUTPUTS)
        if wants_log_probs:
            names.append(contract.OUTPUT_LOG_PROBS)
        start_s = time.perf_counter()
        self._client.async_stream_infer(
            self._model,
            _inputs(prompt, max_tokens, end_id, sampling),
            outputs=[triton.InferRequestedOutput(name) for name in names],
            request_id=f"direct-{next(self._numbers)}",
            enable_empty_final_response=True,
        )
        tokens: list[int] = []
        log_probs: list[float] = []
        first_s = last_s = 0.0
        while True:
            result, error = self._responses.get()
            if error is not None:
                raise RuntimeError(str(error))
            ids = result.as_numpy(contract.OUTPUT_IDS)
            if ids is not None and ids.size:
                last_s = time.perf_counter() - start_s
                first_s = first_s or last_s
                tokens += ids.ravel().tolist()
                values = result.as_numpy(contract.OUTPUT_LOG_PROBS)
                log_probs += [] if values is None else values.ravel().tolist()
            if result.get_response().parameters["triton_final_response"].bool_param:
                return DirectAnswer(tuple(tokens), first_s, last_s, tuple(log_probs))

    def close(self) -> None:
        self._client.stop_stream()
        self._client.close()


def _inputs(prompt: Sequence[int], max_tokens: int, end_id: int, sampling: Sampling) -> list[Any]:
    values: dict[str, npt.NDArray[Any]] = {
        contract.INPUT_IDS: np.asarray([list(prompt)], dtype=np.int32),
        contract.INPUT_LENGTHS: np.asarray([[len(prompt)]], dtype=np.int32),
        contract.REQUEST_OUTPUT_LEN: np.asarray([[max_tokens]], dtype=np.int32),
        contract.END_ID: np.asarray([[end_id]], dtype=np.int32),
        contract.STREAMING: np.asarray([[True]]),
        contract.EXCLUDE_INPUT_IN_OUTPUT: np.asarray([[True]]),
        **dict(sampling_inputs(sampling, len(prompt))),
    }
    inputs = []
    for name, value in values.items():
        tensor = triton.InferInput(name, value.shape, np_to_triton_dtype(value.dtype))
        tensor.set_data_from_numpy(value)
        inputs.append(tensor)
    return inputs
