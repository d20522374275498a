"""Admit requests: check them, and take a slot for each."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from specdec.serving.admission.in_flight import RequestInFlight, RequestsInFlight
from specdec.serving.admission.server_watch import ServerWatch
from specdec.serving.request.parameters import check_parameters
from specdec.serving.request.request import GenerationRequest, RequestLimits, parse_request
from specdec.serving.tracing import Tracing
from specdec.triton_backend.tensors import input_arrays, texts_of


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A checked request that holds a slot, with everything that its thread needs."""

    request: GenerationRequest
    in_flight: RequestInFlight
    """The request as the watchdog sees it."""
    request_id: str
    """Unique id; the ids of the request's engine calls begin with it."""
    sender: Any
    """Triton's sender of responses to the request."""
    outputs: frozenset[str]
    """Names of the outputs that the client asked for."""
    arrival_s: float
    """time.perf_counter() when the request arrived."""


class Admission:
    """Admits the requests to one orchestrator; it never waits."""

    def __init__(
        self,
        inputs: Collection[str],
        limits: RequestLimits,
        watch: ServerWatch,
        requests: RequestsInFlight,
        tracing: Tracing,
    ) -> None:
        """Take the names of the model's inputs, and what decides about an admission."""
        self._inputs = inputs
        self._limits = limits
        self._watch = watch
        self._requests = requests
        self._tracing = tracing

    def admit(self, request: Any, sender: Any) -> AdmittedRequest:
        """Check a Triton request and take a slot for it. Call this inside `execute`.

        Raises InvalidRequestError or UnsupportedError for a request that cannot be answered,
        OverloadedError without a free slot, ShuttingDownError during a stop, and EngineLostError if
        the target is dead or hung. After any exception the request holds no slot.
        """
        arrival_s, start_s = time.perf_counter(), time.monotonic()
        self._watch.check_admission()
        given_id, parameters = texts_of(request)
        check_parameters(parameters, self._inputs)
        parsed = parse_request(input_arrays(request), self._limits)
        deadline_s = None if parsed.deadline_ms is None else parsed.deadline_ms / 1000
        in_flight = RequestInFlight(sender.is_cancelled, deadline_s, start_s, parsed.tenant)
        self._requests.admit(in_flight)
        try:
            # Checked again, because a stop that began meanwhile does not wait for this request.
            self._watch.check_admission()
            asked = parsed.drafter.name
            in_flight.trace = self._tracing.begin(request, task=parsed.task, drafter=asked)
            # Clients may reuse ids, but an abort ends every call of the engine with that id.
            request_id = f"{given_id}:{uuid.uuid4().hex}"
            outputs = frozenset(request.requested_output_names())
        except Exception:
            self._requests.release(in_flight)
            raise
        return AdmittedRequest(parsed, in_flight, request_id, sender, outputs, arrival_s)
