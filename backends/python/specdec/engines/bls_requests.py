"""Send requests to other models of this server over BLS, read the responses, and end them."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from specdec.engines.wire import contract
from specdec.engines.wire.receipts import send_receipt
from specdec.errors import (
    ConfigurationError,
    EngineFailedError,
    EngineLostError,
    InvalidRequestError,
    SpecdecError,
    UnsupportedError,
)


class FinishedCalls:
    """The responses of finished BLS calls, kept for at least KEPT_S seconds after they were read.

    Before Triton 24.12, a background thread of the Python backend may drop the last reference to
    the responses, and so to NumPy arrays, without holding the GIL. The process then crashes or
    hangs, within seconds at 8 concurrent requests. The thread is `SendCleanupId` in pb_stub.cc of
    r24.10; commit b771f4f of python_backend corrects the tensors. With this class, Python itself
    drops the last reference.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Any]] = deque()
        self._lock = threading.Lock()

    def keep(self, responses: Any) -> None:
        """Keep `responses`, and release those that are old enough."""
        now_s = time.monotonic()
        # Releasing old responses may take a while, so this list holds them until the lock is free.
        old = []
        with self._lock:
            self._kept.append((now_s, responses))
            while self._kept[0][0] < now_s - KEPT_S:
                old.append(self._kept.popleft())


KEPT_S = 30.0
"""Seconds after which the background thread is done with a call, even on a busy machine."""

_FINISHED = FinishedCalls()

LOST = "is not healthy"
"""Part of Triton's message for a dead Python model: Stub process 'target_0_0' is not healthy."""

_PASSED_ON: dict[str, type[SpecdecError]] = {
    each.error_type: each for each in (InvalidRequestError, UnsupportedError, ConfigurationError)
}
"""Errors by which our engines blame the request or the deployment, by `error_type`; all others
blame the engine."""

MAX_STOPS = 8
"""Most unanswered stop requests to one model. A model that hangs answers none, and each keeps one
of Triton's threads, which calls to other models need."""

_num_stops: Counter[str] = Counter()
_stops_lock = threading.Lock()
"""Lock of `_num_stops` and of each request's `_is_aborting`."""


class BlsRequests:
    """The calls of one client's request to one model, sent one after another.

    Each call has the id `<prefix>:<number>`. `abort` and `check` may run on other threads.
    """

    def __init__(
        self,
        model: str,
        prefix: str,
        stop_inputs: Callable[[], Sequence[Any]],
        stop_outputs: Sequence[str],
    ) -> None:
        """Take the model's name, the beginning of all ids, and the tensors of a stop request.

        A stop request has the id of the call that is to end, inputs from `stop_inputs`, and the
        outputs `stop_outputs`.
        """
        self._model = model
        self._prefix = prefix
        self._stop_inputs = stop_inputs
        self._stop_outputs = stop_outputs
        self._number = 0
        self._current: str | None = None
        self._is_aborting = False

    def responses(self, inputs: Sequence[Any], outputs: Sequence[str]) -> Generator[Any]:
        """Send a call and yield its responses as they come.

        More than one response is safe only if `outputs` has contract.RECEIPT_ADDRESS: the model
        then waits for a receipt of each response (receipts.py). Raise InvalidRequestError or
        UnsupportedError if the model blames the request, ConfigurationError if it blames the
        deployment, EngineLostError if its process has died, and EngineFailedError for any other
        failure.
        """
        self._number += 1
        request_id = f"{self._prefix}:{self._number}"
        self._current = request_id
        try:
            for response in self._exec(request_id, inputs, outputs):
                if response.has_error():
                    raise self._failure(response.error().message())
                if contract.RECEIPT_ADDRESS in outputs:
                    for address in values(response, contract.RECEIPT_ADDRESS):
                        send_receipt(address.decode())
                yield response
        except pb_utils.TritonModelException as error:
            raise self._failure(str(error)) from error
        finally:
            # An abandoned call may end after the next one has begun.
            if self._current == request_id:
                self._current = None

    def abort(self) -> None:
        """Ask the model to end the running call; do nothing without one.

        This does not wait for an answer, because an engine that hangs gives none. Neither the
        client's request nor the watchdog of all requests may hang with it.
        """
        request_id = self._current
        if request_id is None:
            return
        with _stops_lock:
            if self._is_aborting or _num_stops[self._model] >= MAX_STOPS:
                return
            self._is_aborting = True
            _num_stops[self._model] += 1
        stop = threading.Thread(target=self._stop, args=(request_id,), name="stop", daemon=True)
        try:
            stop.start()
        except RuntimeError:  # The system has no thread left; the watchdog tries again.
            self._stop_ended()

    def check(self) -> None:
        """Raise EngineLostError if the model's process has died; may wait for a slow model."""
        # A stop request for an id that no call has is harmless, and a living model answers it.
        request_id, message = f"{self._prefix}:check", ""
        try:
            for response in self._exec(request_id, self._stop_inputs(), self._stop_outputs):
                message = response.error().message() if response.has_error() else message
        except pb_utils.TritonModelException as error:
            message = str(error)
        if LOST in message:
            raise self._failure(message)

    def _failure(self, message: str) -> SpecdecError:
        error_type, _, text = message.partition(": ")
        if error_type in _PASSED_ON:
            return _PASSED_ON[error_type](f"{self._model}: {text}")
        # Triton's answer to new calls of a dead Python model contains LOST. Calls that were running
        # when it died get no answer.
        kind = EngineLostError if LOST in message else EngineFailedError
        return kind(f"{self._model}: {message}")

    def _stop(self, request_id: str) -> None:
        try:
            for _ in self._exec(request_id, self._stop_inputs(), self._stop_outputs):
                pass
        except pb_utils.TritonModelException:
            pass  # The calls of a dead engine have ended with it.
        finally:
            self._stop_ended()

    def _stop_ended(self) -> None:
        with _stops_lock:
            self._is_aborting = False
            _num_stops[self._model] -= 1

    def _exec(
        self, request_id: str, inputs: Sequence[Any], outputs: Sequence[str]
    ) -> Iterator[Any]:
        request = pb_utils.InferenceRequest(
            request_id=request_id,
            model_name=self._model,
            inputs=list(inputs),
            requested_output_names=list(outputs),
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )
        responses = request.exec(decoupled=True)
        try:
            yield from responses
        finally:
            _FINISHED.keep(responses)


def output(response: Any, name: str) -> npt.NDArray[Any] | None:
    """Return the array of an output, or None if the response does not have it."""
    found = pb_utils.get_output_tensor_by_name(response, name)
    if found is None:
        return None
    array: npt.NDArray[Any] = found.as_numpy()
    return array


def values(response: Any, name: str) -> tuple[Any, ...]:
    """Return the values of an output as Python objects, or () if the response does not have it."""
    return contract.values_of(output(response, name))


def tensor(name: str, array: npt.NDArray[np.generic]) -> pb_utils.Tensor:
    """Return an input tensor for a BLS request."""
    return pb_utils.Tensor(name, array)
