"""Calls the model `target` directly over gRPC: the answer without our orchestrator."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import np_to_triton_dtype

from specdec.acceptance.sampling import SamplingParams
from specdec.engines.call_tensors import CallTensors
from specdec.engines.calls import Call
from specdec.engines.wire import contract
from specdec.engines.wire.sampling_inputs import Sampling
from specdec.loadtest.kit.asking import RequestSettings
from specdec.loadtest.kit.prompts import TokenPrompt

_NUMBERS = itertools.count()
"""Numbers of the calls, for ids that no two of them share."""


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

    def __init__(self, grpc_url: str) -> None:
        self._client = triton.InferenceServerClient(grpc_url)
        self._responses: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        self._client.start_stream(lambda result, error: self._responses.put((result, error)))

    def generate(
        self, prompt: TokenPrompt, settings: RequestSettings, *, wants_log_probs: bool = False
    ) -> DirectAnswer:
        """Return the answer. Raises RuntimeError with the engine's text if it refuses."""
        # The shared sampler draws as the orchestrator's requests do, with this very seed.
        sampling = Sampling(
            SamplingParams(**settings.case.fields(settings.seed)),
            len(prompt.token_ids),
            wants_log_probs=wants_log_probs,
            takes_our_inputs=True,
        )
        context = np.asarray(prompt.token_ids, dtype=np.int32)
        call = Call(context, settings.max_tokens, prompt.end_id, streaming=True)
        tensors = CallTensors(sampling, asks_for_times=False)
        inputs = []
        for name, value in tensors.inputs(call):
            tensor = triton.InferInput(name, value.shape, np_to_triton_dtype(value.dtype))
            inputs.append(tensor.set_data_from_numpy(value))
        start_s = time.perf_counter()
        self._client.async_stream_infer(
            "target",
            inputs,
            outputs=[triton.InferRequestedOutput(name) for name in tensors.outputs(call)],
            request_id=f"direct-{next(_NUMBERS)}",
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
