"""The Triton model `specdec`: requests in, a thread of control each, confirmed tokens out."""

from __future__ import annotations

import json
import os
import time
import traceback
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from specdec.control.gain import GainMeter
from specdec.drafting.auto import AutoDrafter
from specdec.drafting.engine import DraftHealth, EngineDrafter
from specdec.drafting.lookup import LookupDrafter
from specdec.drafting.protocol import Drafter
from specdec.engines.protocol import EngineClock
from specdec.engines.triton_bls import EngineCalls, TritonDraft, TritonTarget
from specdec.errors import OverloadedError, SpecdecError
from specdec.serving.answer import ROUND_DELAY_VARIABLE, Answerer, Job, Outputs
from specdec.serving.flight import Flight, FlightControl
from specdec.serving.metrics import Counter, Gauge, TaskLabels
from specdec.serving.metrics_recorder import MetricsRecorder
from specdec.serving.outbox import Outbox
from specdec.serving.parameters import read_parameters
from specdec.serving.request import GenerationRequest, RequestLimits, parse_request
from specdec.serving.settings import LOOKUP, OrchestratorSettings
from specdec.serving.tokenizing import Tokenizer
from specdec.serving.triton_tensors import FINAL, error_response, input_arrays, response


class TritonPythonModel:
    """Parses and admits on Triton's thread, answers on a thread per request."""

    def initialize(self, args: Mapping[str, str]) -> None:
        config = json.loads(args["model_config"])
        try:
            self._settings = settings = read_parameters(OrchestratorSettings, config)
            directory = Path(pb_utils.get_model_dir()) / settings.tokenizer_dir
            self._tokenizer = Tokenizer(directory.resolve())
        except SpecdecError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        self._limits = RequestLimits(
            self._tokenizer.vocab_size, settings.max_draft_len, settings.drafters
        )
        self._metrics = MetricsRecorder(
            {"model": args["model_name"], "version": args["model_version"]}
        )
        self._metrics.set(Gauge.inflight_limit, settings.inflight_limit)
        self._tasks = TaskLabels()
        self._control = FlightControl(
            settings.inflight_limit,
            settings.cancellation_check_period_ms / 1000,
            lambda count: self._metrics.set(Gauge.inflight_requests, count),
        )
        self._health = {name: DraftHealth() for name in settings.draft_models}
        self._gain = GainMeter(settings.draft_models[0]) if settings.draft_models else None
        delay_s = float(os.environ.get(ROUND_DELAY_VARIABLE, "0")) / 1000
        self._answerer = Answerer(self._tokenizer, self._metrics, settings.max_seq_len, delay_s)
        self._outbox = Outbox()
        limit = settings.inflight_limit
        self._threads = ThreadPoolExecutor(limit, thread_name_prefix="request")
        self._draft_threads = ThreadPoolExecutor(limit, thread_name_prefix="draft")

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._admit(request, sender)
            except Exception as error:  # noqa: BLE001 - the client gets it
                self._refuse(error, sender)

    def finalize(self) -> None:
        self._threads.shutdown(wait=True)
        self._outbox.close()
        self._control.close()
        self._draft_threads.shutdown(wait=False)
        self._metrics.close()

    def _admit(self, request: Any, sender: Any) -> None:
        arrival_s, start_s = time.perf_counter(), time.monotonic()
        parsed = parse_request(input_arrays(request), self._limits)
        deadline_s = None if parsed.deadline_ms is None else parsed.deadline_ms / 1000
        flight = Flight(sender.is_cancelled, deadline_s, start_s)
        self._control.admit(flight)
        # Clients choose ids as they like, and engines end every call of an id that is stopped.
        request_id = f"{request.request_id()}:{uuid.uuid4().hex}"
        wanted = frozenset(request.requested_output_names())
        self._threads.submit(self._serve, parsed, flight, request_id, sender, wanted, arrival_s)

    def _serve(
        self,
        request: GenerationRequest,
        flight: Flight,
        request_id: str,
        sender: Any,
        wanted: frozenset[str],
        arrival_s: float,
    ) -> None:
        """The whole life of an admitted request; exactly one FINAL is sent in every case."""

        def send(outputs: Outputs, is_last: bool) -> None:
            if is_last:
                self._control.release(flight)
            # Triton 24.10 drops outputs that were not asked for without holding the GIL.
            asked = {name: array for name, array in outputs.items() if name in wanted}
            flags = FINAL if is_last else 0
            self._outbox.put(lambda: sender.send(response(asked), flags=flags))

        try:
            job = self._job(request, flight, request_id, arrival_s)
            self._answerer.answer(job, send)
            outcome = "ok"
        except Exception as error:  # noqa: BLE001 - the client gets it
            # What an engine call returned after its request was over says nothing.
            flight.poll()
            over = flight.over() or error
            self._log_unexpected(over)
            outcome = over.error_type if isinstance(over, SpecdecError) else "internal"
            self._control.release(flight)
            self._outbox.put(lambda: sender.send(error_response(over), flags=FINAL))
        self._metrics.add(Counter.requests_total, outcome=outcome)

    def _job(
        self, request: GenerationRequest, flight: Flight, request_id: str, arrival_s: float
    ) -> Job:
        end_id = self._tokenizer.end_id if request.end_id is None else request.end_id
        target_clock, draft_clock = EngineClock(), EngineClock()
        calls = EngineCalls(
            self._settings.tensorrt_llm_model_name,
            request_id,
            "target",
            target_clock if request.return_perf_metrics else None,
        )
        flight.watch(calls)
        return Job(
            request=request,
            flight=flight,
            target=TritonTarget(calls, end_id),
            drafter=self._drafter(request, flight, request_id, end_id, draft_clock),
            target_clock=target_clock,
            draft_clock=draft_clock,
            task_label=self._tasks.label(request.task),
            arrival_s=arrival_s,
        )

    def _drafter(
        self,
        request: GenerationRequest,
        flight: Flight,
        request_id: str,
        end_id: int | None,
        clock: EngineClock,
    ) -> Drafter | None:
        """The drafter that the request names, or None to run the target alone."""
        settings = self._settings
        if request.num_draft_tokens == 0 or request.drafter == "none":
            return None
        num_lookup = request.num_draft_tokens or settings.lookup_num_draft_tokens
        lookup = LookupDrafter(LOOKUP, settings.drafters.index(LOOKUP) + 1, num_lookup)
        if request.drafter == LOOKUP:
            return lookup
        if request.drafter == "auto" and self._gain is None:
            return lookup
        name = settings.draft_models[0] if request.drafter == "auto" else request.drafter
        calls = EngineCalls(name, request_id, name, clock if request.return_perf_metrics else None)
        flight.watch(calls)
        engine = EngineDrafter(
            name=name,
            source=settings.drafters.index(name) + 1,
            num_tokens=request.num_draft_tokens or settings.num_draft_tokens,
            vocab_size=self._tokenizer.vocab_size,
            engine=TritonDraft(
                calls, end_id, self._draft_threads, settings.draft_timeout_ms / 1000
            ),
            health=self._health[name],
            report_failure=self._report_draft_failure,
        )
        if request.drafter == "auto" and self._gain is not None:
            return AutoDrafter(lookup, engine, self._gain)
        return engine

    def _report_draft_failure(self, drafter: str, error: Exception) -> None:
        reason = error.error_type if isinstance(error, SpecdecError) else "internal"
        self._metrics.add(Counter.draft_failures_total, drafter=drafter, reason=reason)
        pb_utils.Logger.log_warn(f"[specdec] drafter {drafter} failed: {error}")

    def _refuse(self, error: Exception, sender: Any) -> None:
        """A request that was not admitted."""
        self._log_unexpected(error)
        error_type = error.error_type if isinstance(error, SpecdecError) else "internal"
        if isinstance(error, OverloadedError):
            self._metrics.add(Counter.shed_total, reason=error_type)
        self._metrics.add(Counter.requests_total, outcome=error_type)
        self._outbox.put(lambda: sender.send(error_response(error), flags=FINAL))

    @staticmethod
    def _log_unexpected(error: Exception) -> None:
        if not isinstance(error, SpecdecError):
            text = "".join(traceback.format_exception(error))
            pb_utils.Logger.log_error(f"[specdec] an unexpected failure: {text}")
