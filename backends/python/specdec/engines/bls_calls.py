"""Calls of engine models over BLS, in the tensors of the `tensorrtllm` contract."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from specdec.engines import contract
from specdec.engines.calls import Call, Said
from specdec.engines.draft_logits import drawn_from, fitted
from specdec.engines.protocol import EngineClock
from specdec.engines.receipts import send_receipt
from specdec.engines.sampling_inputs import Sampling, sampling_inputs
from specdec.errors import EngineFailedError


class FinishedCalls:
    """Keeps the responses of BLS calls for KEPT_S after they were asked for.

    Until Triton 24.12 a background thread of the Python backend may drop the last reference to
    them, and with it numpy arrays, without holding the GIL: the process crashes or hangs, within
    seconds at 8 concurrent requests. (python_backend b771f4f mends the tensors; pb_stub.cc
    SendCleanupId of r24.10 is that thread.) Here the last reference is Python's own.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Any]] = deque()
        self._lock = threading.Lock()

    def kept(self, responses: Any) -> Any:
        """Returns `responses`, and lets go of those that are old enough."""
        now_s = time.monotonic()
        old = []
        with self._lock:
            self._kept.append((now_s, responses))
            while self._kept[0][0] < now_s - KEPT_S:
                old.append(self._kept.popleft())
        return responses


KEPT_S = 30.0
"""Long after the background thread is done with a call, even on a starved machine."""

_FINISHED = FinishedCalls()


class BlsCalls:
    """Builds and runs the calls of one request to one engine model of this server."""

    def __init__(
        self,
        model: str,
        request_id: str,
        label: str,
        sampling: Sampling,
        clock: EngineClock | None = None,
    ) -> None:
        self._model = model
        self._prefix = f"{request_id}:{label}"
        self._clock = clock
        self._sampling = sampling
        self._outputs = list(contract.REQUIRED_OUTPUTS)
        if sampling.wants_log_probs:
            self._outputs.append(contract.OUTPUT_LOG_PROBS)
        if clock is not None:
            self._outputs += [contract.ARRIVAL_TIME_NS, contract.LAST_TOKEN_TIME_NS]
        self._number = 0
        self._current: str | None = None
        self._is_aborting = False

    def run(self, call: Call) -> Generator[Said]:
        """What each response adds. Raises EngineFailedError."""
        self._number += 1
        call_id = f"{self._prefix}:{self._number}"
        request = pb_utils.InferenceRequest(
            request_id=call_id,
            model_name=self._model,
            inputs=self._inputs(call),
            requested_output_names=self._outputs_of(call),
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )
        self._current = call_id
        try:
            for response in _FINISHED.kept(request.exec(decoupled=True)):
                if response.has_error():
                    raise EngineFailedError(f"{self._model}: {response.error().message()}")
                if call.streaming:
                    self._confirm(response)
                said = self._read(response)
                if said is not None:  # None: the empty response that only ends a stream.
                    yield said
        except pb_utils.TritonModelException as error:
            raise EngineFailedError(f"{self._model}: {error}") from error
        finally:
            if self._current == call_id:  # A call that was given up may end after its successor.
                self._current = None

    def _counts(self, call: Call) -> bool:
        """Only the engine knows what stands.

        The correction may repeat the draft's token, or may be one of an unverified branch.
        """
        is_judged = self._sampling.is_judged and self._sampling.has_shared_sampler
        return bool(call.draft.tokens) and (is_judged or bool(call.draft.parents))

    def _outputs_of(self, call: Call) -> list[str]:
        outputs = [*self._outputs]
        if self._counts(call):
            outputs += [contract.TOTAL_ACCEPTED_DRAFT_TOKENS, contract.TOTAL_DRAFT_TOKENS]
        if call.returns_logits:
            outputs.append(contract.GENERATION_LOGITS)
        if call.streaming and self._sampling.has_shared_sampler:
            outputs.append(contract.RECEIPT_ADDRESS)
        if call.draft.num_next:
            outputs.append(contract.NEXT_DRAFT_IDS)
            if call.draft.next_depth is not None:
                outputs.append(contract.NEXT_DRAFT_PARENTS)
        return outputs

    def _inputs(self, call: Call) -> list[Any]:
        context, draft = call.context, call.draft
        inputs = [
            _tensor(contract.INPUT_IDS, context[None]),
            _int32(contract.INPUT_LENGTHS, len(context)),
            _int32(contract.REQUEST_OUTPUT_LEN, call.max_new_tokens),
            _bool(contract.EXCLUDE_INPUT_IN_OUTPUT, True),
        ]
        inputs += [_tensor(*each) for each in sampling_inputs(self._sampling, len(context))]
        for name, number in (
            (contract.END_ID, call.end_id),
            (contract.NUM_NEXT_DRAFTS, draft.num_next),
            (contract.NEXT_DRAFT_DEPTH, draft.next_depth),
        ):
            if number is not None:
                inputs.append(_int32(name, number))
        for name, is_wanted in (
            (contract.RETURN_PERF_METRICS, self._clock is not None or self._counts(call)),
            (contract.STREAMING, call.streaming),
            (contract.RETURN_GENERATION_LOGITS, call.returns_logits),
        ):
            if is_wanted:
                inputs.append(_bool(name, True))
        if draft.tokens:  # An empty tensor is refused by the C++ backend.
            inputs.append(
                _tensor(contract.DRAFT_INPUT_IDS, np.asarray([draft.tokens], dtype=np.int32))
            )
            if draft.parents:
                parents = np.asarray([draft.parents], dtype=np.int32)
                inputs.append(_tensor(contract.DRAFT_PARENTS, parents))
            if draft.logits is not None:
                logits = fitted(draft.logits, self._sampling)
                inputs.append(_tensor(contract.DRAFT_LOGITS, logits[None]))
            if self._sampling.is_judged and self._sampling.has_shared_sampler:
                rule = self._sampling.verification.encode()
                inputs.append(
                    _tensor(contract.VERIFICATION, np.asarray([[rule]], dtype=np.object_))
                )
        return inputs

    def _read(self, response: Any) -> Said | None:
        ids, lengths = (_output(response, name) for name in contract.REQUIRED_OUTPUTS)
        if ids is None or lengths is None:
            return None
        self._advance_clock(response)
        tokens = tuple(ids.ravel()[: int(lengths.ravel()[0])].tolist())
        logits = _output(response, contract.GENERATION_LOGITS)
        return Said(
            tokens,
            _values(response, contract.OUTPUT_LOG_PROBS),
            None if logits is None else drawn_from(logits, self._sampling),
            next(iter(_values(response, contract.TOTAL_ACCEPTED_DRAFT_TOKENS)), None),
            next(iter(_values(response, contract.TOTAL_DRAFT_TOKENS)), None),
            _values(response, contract.NEXT_DRAFT_IDS),
            _values(response, contract.NEXT_DRAFT_PARENTS),
        )

    def _confirm(self, response: Any) -> None:
        for address in _values(response, contract.RECEIPT_ADDRESS):
            send_receipt(address.decode())

    def _advance_clock(self, response: Any) -> None:
        if self._clock is None:
            return
        arrival = _values(response, contract.ARRIVAL_TIME_NS)
        last = _values(response, contract.LAST_TOKEN_TIME_NS)
        if arrival and last:
            self._clock.busy_s += (last[0] - arrival[0]) / 1e9

    def abort(self) -> None:
        """Asks the engine to end the call in flight; harmless when there is none.

        The answer is not waited for: an engine that hangs leaves a stop request unanswered too,
        and neither the request nor the watchdog of all requests may hang with it.
        """
        call_id = self._current
        if call_id is not None and not self._is_aborting:
            self._is_aborting = True
            threading.Thread(target=self._stop, args=(call_id,), name="stop", daemon=True).start()

    def _stop(self, call_id: str) -> None:
        request = pb_utils.InferenceRequest(
            request_id=call_id,
            model_name=self._model,
            inputs=[
                _tensor(contract.INPUT_IDS, np.ones((1, 1), dtype=np.int32)),
                _int32(contract.INPUT_LENGTHS, 0),
                _int32(contract.REQUEST_OUTPUT_LEN, 0),
                _bool(contract.STOP, True),
            ],
            requested_output_names=list(contract.REQUIRED_OUTPUTS),
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )
        try:
            for _ in _FINISHED.kept(request.exec(decoupled=True)):
                pass
        except pb_utils.TritonModelException:
            pass  # An engine that is gone has ended its calls itself.
        finally:
            self._is_aborting = False


def _output(response: Any, name: str) -> npt.NDArray[Any] | None:
    tensor = pb_utils.get_output_tensor_by_name(response, name)
    if tensor is None:
        return None
    array: npt.NDArray[Any] = tensor.as_numpy()
    return array


def _values(response: Any, name: str) -> tuple[Any, ...]:
    array = _output(response, name)
    return () if array is None else tuple(array.ravel().tolist())


def _tensor(name: str, array: npt.NDArray[np.generic]) -> pb_utils.Tensor:
    return pb_utils.Tensor(name, array)


def _int32(name: str, value: int) -> pb_utils.Tensor:
    return pb_utils.Tensor(name, np.asarray([[value]], dtype=np.int32))


def _bool(name: str, value: bool) -> pb_utils.Tensor:
    return pb_utils.Tensor(name, np.asarray([[value]], dtype=np.bool_))
