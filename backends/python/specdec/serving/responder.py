"""Send responses to clients, and count requests by how they ended."""

from __future__ import annotations

from typing import Any

from specdec.errors import (
    OverloadedError,
    RequestCancelledError,
    ShuttingDownError,
    SpecdecError,
)
from specdec.serving.admission.admission import AdmittedRequest
from specdec.serving.admission.in_flight import RequestsInFlight
from specdec.serving.metrics.definitions import Counter, MetricsSink
from specdec.serving.outputs import Outputs
from specdec.triton_backend.log import log_unexpected
from specdec.triton_backend.outbox import Outbox
from specdec.triton_backend.tensors import error_response, response

OK = "ok"
"""Outcome of a request that was answered to its end; other outcomes are error types."""


class Responder:
    """Sends the responses to all requests; each request gets exactly one last response.

    A request gives its slot back just before its last response is sent. Thread-safe.
    """

    def __init__(self, requests: RequestsInFlight, metrics: MetricsSink, outbox: Outbox) -> None:
        self._requests = requests
        self._metrics = metrics
        self._outbox = outbox

    def send(self, admitted: AdmittedRequest, outputs: Outputs, is_last: bool) -> None:
        """Queue a response with the outputs that the client asked for.

        Raises RequestCancelledError if the last response was sent before, as by the watchdog.
        """
        if admitted.in_flight.has_ended or (
            is_last and not self._requests.release(admitted.in_flight)
        ):
            raise RequestCancelledError("the watchdog has answered")
        # Filtered here, because Triton 24.10 drops unrequested outputs without holding the GIL.
        asked = {name: array for name, array in outputs.items() if name in admitted.outputs}
        if is_last:
            self._outbox.put_last(admitted.sender, lambda: response(asked))
            self._metrics.add(Counter.requests_total, outcome=OK)
        else:
            self._outbox.put(lambda: admitted.sender.send(response(asked)))

    def fail(self, admitted: AdmittedRequest, error: Exception) -> str:
        """Send an error, unless a last response was sent before; return the request's outcome."""
        log_unexpected(error)
        if self._requests.release(admitted.in_flight):
            self._send_error(admitted.sender, error)
        return _outcome_of(error)

    def refuse(self, sender: Any, error: Exception) -> None:
        """Send the error of a request that was not admitted."""
        log_unexpected(error)
        if isinstance(error, OverloadedError | ShuttingDownError):
            self._metrics.add(Counter.shed_total, reason=_outcome_of(error))
        self._send_error(sender, error)

    def _send_error(self, sender: Any, error: Exception) -> None:
        self._metrics.add(Counter.requests_total, outcome=_outcome_of(error))
        self._outbox.put_last(sender, lambda: error_response(error))


def _outcome_of(error: Exception) -> str:
    return error.error_type if isinstance(error, SpecdecError) else "internal"
