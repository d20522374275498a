"""Implement the Triton model `specdec`. The path of a request begins here, in `execute`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from specdec.errors import EngineLostError, SpecdecError
from specdec.serving.admission.admission import AdmittedRequest
from specdec.serving.assembly import Parts, assemble
from specdec.serving.job import Job
from specdec.serving.responder import OK
from specdec.triton_backend.process_end import skip_destructors

SWITCH_INTERVAL_S = 0.0002
"""Longest time in seconds that a thread keeps the GIL while others wait for it. If a thread that
reads an `llmapi` model's stream without receipts waits for the GIL, the backend can lock up
(engines/wire/receipts.py). Shorter waits make that rarer."""


class TritonPythonModel:
    """The orchestrator: admits requests on Triton's thread, answers each on a thread of its own."""

    _parts: Parts

    def initialize(self, args: Mapping[str, str]) -> None:
        skip_destructors()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            self._parts = assemble(args, Path(pb_utils.get_model_dir()))
        except SpecdecError as error:
            raise pb_utils.TritonModelException(str(error)) from error

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                admitted = self._parts.admission.admit(request, sender)
            except Exception as error:  # noqa: BLE001 - the client gets it
                self._parts.responder.refuse(sender, error)
            else:
                self._start(admitted)

    def finalize(self) -> None:
        """Close everything when Triton unloads the model.

        `specdec serve` stops in another way: it requests a drain on the heartbeat board, and
        `ServerWatch` carries it out.
        """
        self._parts.close()

    def _start(self, admitted: AdmittedRequest) -> None:
        """Start the thread of an admitted request."""
        fail = partial(self._parts.responder.fail, admitted)
        admitted.in_flight.give_up = fail
        try:
            self._parts.threads.submit(self._serve, admitted)
        except Exception as error:  # noqa: BLE001 - the client gets it, and the slot is given back
            fail(error)

    def _serve(self, admitted: AdmittedRequest) -> None:
        """Answer an admitted request to its end, on its own thread."""
        parts, in_flight = self._parts, admitted.in_flight
        job: Job | None = None
        try:
            job = parts.jobs.build(admitted)
            tokens = parts.answerer.answer(job, partial(parts.responder.send, admitted))
            outcome = OK
        except Exception as error:  # noqa: BLE001 - the client gets it
            # After an abort the client gets its reason, not an error that the abort has caused.
            with suppress(Exception):  # Triton may have freed the request.
                in_flight.poll()
            outcome = parts.responder.fail(admitted, in_flight.reason_to_end() or error)
            if isinstance(error, EngineLostError):
                parts.requests.fail_all(error)
        # The drafter may still be working on the next round.
        in_flight.abort_calls()
        in_flight.trace.end(outcome)
        if job is not None:
            parts.plane.finished(job.engines.drafter, job.task_label, is_complete=outcome == OK)
            if outcome == OK and job.engines.drafter is not None:
                parts.drafters.remember(job.request.tenant, tokens)
