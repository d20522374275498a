"""Engine models called over BLS through the `tensorrtllm` contract.

Both adapters belong to one request and run on its thread. Each engine call gets a request id of
its own, `<request>:<engine>:<number>`: the C++ backend keys running requests by that string.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from specdec.engines import contract
from specdec.engines.protocol import EngineClock, TokenIds, Verification
from specdec.errors import DraftTimeoutError, EngineFailedError


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


class EngineCalls:
    """Builds and runs the calls of one request to one engine model.

    `abort` may be called from another thread; it also reaches a call that is still on its way to
    the engine, because it is repeated until the request has ended.
    """

    def __init__(
        self, model: str, request_id: str, label: str, clock: EngineClock | None = None
    ) -> None:
        """`clock` is advanced by the engine's own times, which are asked for only then."""
        self._model = model
        self._prefix = f"{request_id}:{label}"
        self._clock = clock
        self._outputs = list(contract.REQUIRED_OUTPUTS)
        if clock is not None:
            self._outputs += [contract.ARRIVAL_TIME_NS, contract.LAST_TOKEN_TIME_NS]
        self._number = 0
        self._current: str | None = None
        self._is_aborting = False

    def run(
        self,
        context: TokenIds,
        max_new_tokens: int,
        *,
        end_id: int | None,
        draft: tuple[int, ...] = (),
        streaming: bool = False,
    ) -> Generator[tuple[int, ...]]:
        """The new tokens of each response. Raises EngineFailedError."""
        self._number += 1
        call_id = f"{self._prefix}:{self._number}"
        inputs = [
            _tensor(contract.INPUT_IDS, context[None]),
            _int32(contract.INPUT_LENGTHS, len(context)),
            _int32(contract.REQUEST_OUTPUT_LEN, max_new_tokens),
            _int32(contract.RUNTIME_TOP_K, 1),
            _bool(contract.EXCLUDE_INPUT_IN_OUTPUT, True),
        ]
        # Each tensor costs a copy through shared memory at each hop; defaults are not sent.
        if streaming:
            inputs.append(_bool(contract.STREAMING, True))
        if self._clock is not None:
            inputs.append(_bool(contract.RETURN_PERF_METRICS, True))
        if end_id is not None:
            inputs.append(_int32(contract.END_ID, end_id))
        if draft:  # An empty tensor is refused by the C++ backend.
            inputs.append(_tensor(contract.DRAFT_INPUT_IDS, np.asarray([draft], dtype=np.int32)))
        request = pb_utils.InferenceRequest(
            request_id=call_id,
            model_name=self._model,
            inputs=inputs,
            requested_output_names=self._outputs,
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )
        self._current = call_id
        try:
            for response in _FINISHED.kept(request.exec(decoupled=True)):
                if response.has_error():
                    raise EngineFailedError(f"{self._model}: {response.error().message()}")
                ids = pb_utils.get_output_tensor_by_name(response, contract.OUTPUT_IDS)
                if ids is None:  # The empty response that only ends a stream.
                    continue
                lengths = pb_utils.get_output_tensor_by_name(response, contract.SEQUENCE_LENGTH)
                self._advance_clock(response)
                num_tokens = int(lengths.as_numpy().ravel()[0])
                yield tuple(ids.as_numpy().ravel()[:num_tokens].tolist())
        except pb_utils.TritonModelException as error:
            raise EngineFailedError(f"{self._model}: {error}") from error
        finally:
            if self._current == call_id:  # A call that was given up may end after its successor.
                self._current = None

    def _advance_clock(self, response: Any) -> None:
        arrival, last = (
            pb_utils.get_output_tensor_by_name(response, name)
            for name in (contract.ARRIVAL_TIME_NS, contract.LAST_TOKEN_TIME_NS)
        )
        if self._clock is not None and arrival is not None and last is not None:
            self._clock.busy_s += int(last.as_numpy().ravel()[0]) / 1e9
            self._clock.busy_s -= int(arrival.as_numpy().ravel()[0]) / 1e9

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


class TritonTarget:
    """The target engine model, for one request."""

    def __init__(self, calls: EngineCalls, end_id: int | None) -> None:
        self._calls = calls
        self._end_id = end_id

    def verify(self, context: TokenIds, draft: tuple[int, ...]) -> Verification:
        tokens: tuple[int, ...] = ()
        for part in self._calls.run(context, len(draft) + 1, end_id=self._end_id, draft=draft):
            tokens += part
        # The contract has no finish reason and leaves the end token out: a result that stops
        # within the draft, without a correction, is one that met the end.
        return Verification(tokens, ended=tokens == draft[: len(tokens)])

    def stream(self, context: TokenIds, max_tokens: int) -> Generator[Verification]:
        num_tokens = 0
        parts = self._calls.run(context, max_tokens, end_id=self._end_id, streaming=True)
        finished = False
        try:
            for tokens in parts:
                num_tokens += len(tokens)
                if tokens:
                    yield Verification(tokens, ended=False)
            finished = True
        finally:
            if not finished:
                # Leaving a BLS stream waits until the engine is done, so it is stopped first.
                self._calls.abort()
        if num_tokens < max_tokens:
            yield Verification((), ended=True)


class TritonDraft:
    """A draft engine model, for one request; a call that takes too long is given up."""

    def __init__(
        self, calls: EngineCalls, end_id: int | None, executor: ThreadPoolExecutor, timeout_s: float
    ) -> None:
        self._calls = calls
        self._end_id = end_id
        self._executor = executor
        self._timeout_s = timeout_s

    def draft(self, context: TokenIds, num_tokens: int) -> tuple[int, ...]:
        future = self._executor.submit(self._draft, context, num_tokens)
        try:
            return future.result(self._timeout_s)
        except FutureTimeoutError:
            future.cancel()
            self._calls.abort()
            raise DraftTimeoutError(
                f"no draft within the limit of {self._timeout_s * 1000:.0f} ms"
            ) from None

    def _draft(self, context: TokenIds, num_tokens: int) -> tuple[int, ...]:
        tokens: tuple[int, ...] = ()
        for part in self._calls.run(context, num_tokens, end_id=self._end_id):
            tokens += part
        return tokens


def _tensor(name: str, array: npt.NDArray[np.generic]) -> pb_utils.Tensor:
    return pb_utils.Tensor(name, array)


def _int32(name: str, value: int) -> pb_utils.Tensor:
    return pb_utils.Tensor(name, np.asarray([[value]], dtype=np.int32))


def _bool(name: str, value: bool) -> pb_utils.Tensor:
    return pb_utils.Tensor(name, np.asarray([[value]], dtype=np.bool_))
