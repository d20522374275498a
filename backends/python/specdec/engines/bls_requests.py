"""Requests to other models of this server over BLS: sent, read as they answer, stopped."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from specdec.engines import contract
from specdec.engines.receipts import send_receipt
from specdec.errors import (
    EngineFailedError,
    EngineLostError,
    InvalidRequestError,
    SpecdecError,
    UnsupportedError,
)


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

LOST = "is not healthy"
"""Of "Stub process 'target_0_0' is not healthy.", Triton's word for a dead Python model."""

REQUESTS_FAULTS = {each.error_type: each for each in (InvalidRequestError, UnsupportedError)}
"""Errors of an engine of ours whose cause is the request; all others are the engine's failures."""


class BlsRequests:
    """The requests of one of ours to one model, one after the other, each with an id of its own."""

    def __init__(
        self,
        model: str,
        prefix: str,
        stop_inputs: Callable[[], Sequence[Any]],
        stop_outputs: Sequence[str],
    ) -> None:
        """`prefix`: of the ids; `stop_…`: what asks the model to end the request of an id."""
        self._model = model
        self._prefix = prefix
        self._stop_inputs = stop_inputs
        self._stop_outputs = stop_outputs
        self._number = 0
        self._current: str | None = None
        self._is_aborting = False

    def responses(self, inputs: Sequence[Any], outputs: Sequence[str]) -> Generator[Any]:
        """What the model answers, as it comes. Raises EngineFailedError.

        More than one response is safe only where `outputs` has contract.RECEIPT_ADDRESS
        (receipts.py).
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
            if self._current == request_id:  # One that was given up may end after its successor.
                self._current = None

    def abort(self) -> None:
        """Asks the model to end the request in flight; harmless when there is none.

        The answer is not waited for: an engine that hangs leaves a stop request unanswered too,
        and neither the request nor the watchdog of all requests may hang with it.
        """
        request_id = self._current
        if request_id is not None and not self._is_aborting:
            self._is_aborting = True
            threading.Thread(
                target=self._stop, args=(request_id,), name="stop", daemon=True
            ).start()

    def check(self) -> None:
        """Raises EngineLostError if the model's process is gone; may wait for a slow one."""
        # A stop for an id that nobody has.
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
        if error_type in REQUESTS_FAULTS:
            return REQUESTS_FAULTS[error_type](f"{self._model}: {text}")
        # Triton answers new calls of a Python model whose process has died so, and pending ones
        # never.
        kind = EngineLostError if LOST in message else EngineFailedError
        return kind(f"{self._model}: {message}")

    def _stop(self, request_id: str) -> None:
        try:
            for _ in self._exec(request_id, self._stop_inputs(), self._stop_outputs):
                pass
        except pb_utils.TritonModelException:
            pass  # An engine that is gone has ended its calls itself.
        finally:
            self._is_aborting = False

    def _exec(self, request_id: str, inputs: Sequence[Any], outputs: Sequence[str]) -> Any:
        request = pb_utils.InferenceRequest(
            request_id=request_id,
            model_name=self._model,
            inputs=list(inputs),
            requested_output_names=list(outputs),
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )
        return _FINISHED.kept(request.exec(decoupled=True))


def output(response: Any, name: str) -> npt.NDArray[Any] | None:
    """The array of an output, None where the response has none."""
    found = pb_utils.get_output_tensor_by_name(response, name)
    if found is None:
        return None
    array: npt.NDArray[Any] = found.as_numpy()
    return array


def values(response: Any, name: str) -> tuple[Any, ...]:
    """The same as plain values; none for none."""
    array = output(response, name)
    return () if array is None else tuple(array.ravel().tolist())


def tensor(name: str, array: npt.NDArray[np.generic]) -> pb_utils.Tensor:
    """An input."""
    return pb_utils.Tensor(name, array)
