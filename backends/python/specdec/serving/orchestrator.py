"""Implement the Triton model `specdec`, which admits requests and streams their answers."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils

from specdec.deployment.freshness import Drifted, FreshnessWatch, fingerprint_of, weights_of
from specdec.deployment.load_check import check_repository
from specdec.deployment.machine import machine
from specdec.deployment.placement import PlacedEngines
from specdec.drafting.names import HEAD_TREE
from specdec.errors import (
    EngineLostError,
    OverloadedError,
    RequestCancelledError,
    ShuttingDownError,
    SpecdecError,
)
from specdec.health.assessment import hang_limit_s
from specdec.health.board import BoardHeartbeat, Role, State, board_directory
from specdec.serving.admission.in_flight import Flight, FlightControl
from specdec.serving.admission.server_watch import ServerWatch
from specdec.serving.admission.tenant_shares import TenantShares
from specdec.serving.answer import ROUND_DELAY_VARIABLE, Answerer, Outputs
from specdec.serving.control_plane import ControlPlane
from specdec.serving.cross_vocabulary import CrossVocabularyDraft
from specdec.serving.drafters import DrafterFactory
from specdec.serving.job import Job
from specdec.serving.job_builder import JobMaker
from specdec.serving.metrics.definitions import Counter, Gauge
from specdec.serving.metrics.recorder import MetricsRecorder
from specdec.serving.request.parameters import check_parameters
from specdec.serving.request.prompt_log import PromptLog
from specdec.serving.request.request import GenerationRequest, RequestLimits, parse_request
from specdec.serving.task_labels import TaskLabeler
from specdec.serving.text.tokenizing import Tokenizer
from specdec.serving.tracing import Tracing
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.settings.parameters import own_config, read_parameters
from specdec.steering.state_file import StateFile
from specdec.triton_backend.outbox import Outbox
from specdec.triton_backend.process_end import skip_destructors
from specdec.triton_backend.tensors import (
    error_response,
    input_arrays,
    response,
    texts_of,
)

SWITCH_INTERVAL_S = 0.0002
"""Longest time in seconds that a thread keeps the GIL while others wait for it. If a thread that
reads an `llmapi` model's stream without receipts waits for the GIL, the backend can lock up
(engines/wire/receipts.py). Shorter waits make that rarer."""


class TritonPythonModel:
    """The orchestrator: admits requests on Triton's thread, answers each on a thread of its own."""

    def initialize(self, args: Mapping[str, str]) -> None:
        skip_destructors()
        config = json.loads(args["model_config"])
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            self._settings = settings = read_parameters(OrchestratorSettings, own_config(config))
            self._inputs = tuple(each["name"] for each in config["input"])
            needs = (settings.tensorrt_llm_model_name,)
            pulse = BoardHeartbeat(args["model_name"], Role.ORCHESTRATOR, needs)
            here = Path(pb_utils.get_model_dir())
            self._tokenizer = Tokenizer((here / settings.tokenizer_dir).resolve())
            check_repository(here.parents[1], settings, self._tokenizer.model_vocab_size)
            strangers = {
                name: CrossVocabularyDraft.load((here / directory).resolve())
                for name, directory in settings.draft_tokenizers.items()
            }
            log = settings.prompt_log(here)
            self._prompt_log = PromptLog(log, self._warn) if log else None
            self._engines = PlacedEngines(config, here)
            self._metrics = MetricsRecorder(
                {"model": args["model_name"], "version": args["model_version"]}
            )
            self._plane = ControlPlane(
                settings.control,
                self._metrics,
                self._control_memory(here, settings.control_state_file),
                self._control_memory(here, settings.control_profile),
                self._inform,
                self._warn,
            )
            self._drafters = DrafterFactory(
                settings,
                self._tokenizer,
                strangers,
                self._engines,
                self._plane.controller,
                self._plane.traffic,
                self._report_draft_failure,
            )
        except SpecdecError as error:
            raise pb_utils.TritonModelException(str(error)) from error
        for name, stranger in strangers.items():
            self._inform(f"draft {name}: {stranger}")
        self._limits = RequestLimits(
            self._tokenizer.vocab_size,
            settings.max_draft_len,
            settings.drafters,
            settings.max_seq_len,
            self._tokenizer.max_text_bytes(settings.max_seq_len),
        )
        self._metrics.set(Gauge.inflight_limit, settings.inflight_limit)
        self._freshness = FreshnessWatch(
            self._trained_places, self._report_freshness, self._report_swap
        )
        self._jobs = JobMaker(
            settings,
            self._tokenizer,
            self._engines,
            self._drafters,
            TaskLabeler(settings, self._tokenizer, self._plane.labels),
            self._prompt_log,
        )
        self._tracing = Tracing(self._warn)
        self._control = FlightControl(
            TenantShares(settings.inflight_limit, settings.max_tenant_share),
            settings.cancellation_check_period_ms / 1000,
            self._count,
            pulse,
        )
        self._watch = ServerWatch(
            self._control,
            settings.tensorrt_llm_model_name,
            board_directory(),
            pulse,
            hang_limit_s(),
            self._flush,
            self._warn,
            exits_on_dead_engine=settings.exit_on_dead_engine,
        )
        delay_s = float(os.environ.get(ROUND_DELAY_VARIABLE, "0")) / 1000
        self._answerer = Answerer(self._tokenizer, self._metrics, delay_s)
        self._outbox = Outbox()
        limit = settings.inflight_limit
        self._threads = ThreadPoolExecutor(limit, thread_name_prefix="request")
        self._pulse = pulse
        pulse.enter(State.SERVING)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                self._admit(request, sender)
            except Exception as error:  # noqa: BLE001 - the client gets it
                self._refuse(error, sender)

    def finalize(self) -> None:
        """Close everything when Triton unloads the model.

        `specdec serve` stops in another way: it requests a drain on the heartbeat board, and the
        drain ends with `_flush`.
        """
        self._threads.shutdown(wait=True)
        self._watch.close()
        self._freshness.close()
        if self._prompt_log is not None:
            self._prompt_log.close()
        self._outbox.close()
        # Closing the rest may take longer than the hang limit, so the heartbeat must end first.
        self._pulse.close()
        self._control.close()
        self._plane.close()
        self._drafters.close()
        self._engines.close()
        self._tracing.close()
        self._metrics.close()

    def _flush(self) -> None:
        """Send queued responses, and write logged prompts and measurements to disk.

        The process is killed afterwards, so anything that is still queued would be lost.
        """
        self._outbox.flush()
        if self._prompt_log is not None:
            self._prompt_log.close()
        self._plane.close()

    def _admit(self, request: Any, sender: Any) -> None:
        arrival_s, start_s = time.perf_counter(), time.monotonic()
        self._watch.check_admission()
        given_id, parameters = texts_of(request)
        check_parameters(parameters, self._inputs)
        parsed = parse_request(input_arrays(request), self._limits)
        deadline_s = None if parsed.deadline_ms is None else parsed.deadline_ms / 1000
        flight = Flight(sender.is_cancelled, deadline_s, start_s, parsed.tenant)
        flight.give_up = lambda error: self._end(flight, sender, error)
        self._control.admit(flight)
        try:
            # Checked again, because a stop that began meanwhile does not wait for this request.
            self._watch.check_admission()
            flight.trace = self._tracing.begin(request, task=parsed.task, drafter=parsed.drafter)
            # Clients may reuse ids, but an abort ends every call of the engine with that id.
            request_id = f"{given_id}:{uuid.uuid4().hex}"
            wanted = frozenset(request.requested_output_names())
            self._threads.submit(self._serve, parsed, flight, request_id, sender, wanted, arrival_s)
        except Exception as error:  # noqa: BLE001 - the client gets it, and the slot is given back
            self._end(flight, sender, error)

    def _serve(
        self,
        request: GenerationRequest,
        flight: Flight,
        request_id: str,
        sender: Any,
        wanted: frozenset[str],
        arrival_s: float,
    ) -> None:
        """Serve an admitted request to its end; the client always gets exactly one last response.

        `wanted` has the names of the outputs to send. `arrival_s` is the time.perf_counter() when
        the request arrived.
        """

        def send(outputs: Outputs, is_last: bool) -> None:
            if flight.has_ended or (is_last and not self._control.release(flight)):
                raise RequestCancelledError("the watchdog has answered")
            # Filtered here, because Triton 24.10 drops unrequested outputs without holding the GIL.
            asked = {name: array for name, array in outputs.items() if name in wanted}
            if is_last:
                self._outbox.put_last(sender, lambda: response(asked))
            else:
                self._outbox.put(lambda: sender.send(response(asked)))

        job: Job | None = None
        try:
            job = self._jobs.make(request, flight, request_id, arrival_s)
            text = self._answerer.answer(job, send)
            outcome = "ok"
            self._metrics.add(Counter.requests_total, outcome=outcome)
            self._drafters.memory.learn(request.tenant, text)
        except Exception as error:  # noqa: BLE001 - the client gets it
            # After an abort the client gets its reason, not an error that the abort has caused.
            with suppress(Exception):  # Triton may have freed the request.
                flight.poll()
            outcome = self._end(flight, sender, flight.reason_to_end() or error)
            if isinstance(error, EngineLostError):
                self._control.fail_all(error)
        # The drafter may still be working on the next round.
        flight.abort_calls()
        flight.trace.end(outcome)
        if job is not None:
            self._plane.finished(job.engines.drafter, job.task_label, is_complete=outcome == "ok")

    def _end(self, flight: Flight, sender: Any, error: Exception) -> str:
        """Send the error, unless a last response was sent before; return the outcome's label."""
        outcome = error.error_type if isinstance(error, SpecdecError) else "internal"
        self._log_unexpected(error)
        if self._control.release(flight):
            self._outbox.put_last(sender, lambda: error_response(error))
            self._metrics.add(Counter.requests_total, outcome=outcome)
        return outcome

    def _control_memory(self, here: Path, file: str) -> StateFile | None:
        """Return the controller's state file at the path `file`; None if `file` is empty.

        A relative path starts at the version directory `here`.
        """
        if not file:
            return None
        target, _ = self._trained_places()
        engines = (*self._settings.drafters, fingerprint_of(target) or "unknown target")
        path, signature = (here / file).resolve(), "|".join(engines)
        return StateFile(path, signature, machine(), self._drafters_weights)

    def _drafters_weights(self) -> dict[str, str]:
        _, drafters = self._trained_places()
        found = {name: weights_of(folder) for name, folder in drafters.items()}
        return found | {name + HEAD_TREE: found[name] for name in self._settings.heads}

    def _count(self, num_inflight: int) -> None:
        self._plane.traffic.set_inflight(num_inflight)
        self._metrics.set(Gauge.inflight_requests, num_inflight)

    def _trained_places(self) -> tuple[Path, dict[str, Path]]:
        settings, engines = self._settings, self._engines
        target = settings.tensorrt_llm_model_name
        drafts = {name: engines.checkpoint(name) for name in settings.draft_models}
        heads = {name: engines.head(target) for name in settings.heads}
        return engines.checkpoint(target), drafts | heads

    def _report_freshness(self, drafter: str, drifted: Drifted | None) -> None:
        self._metrics.set(Gauge.draft_stale, float(drifted is not None), drafter=drafter)
        if drifted is not None:
            self._warn(str(drifted))

    def _report_swap(self, drafter: str) -> None:
        self._plane.controller.renew([drafter, drafter + HEAD_TREE])
        self._inform(f"another version of {drafter} is served: its acceptance is measured anew")

    def _report_draft_failure(self, drafter: str, error: Exception) -> None:
        reason = error.error_type if isinstance(error, SpecdecError) else "internal"
        self._metrics.add(Counter.draft_failures_total, drafter=drafter, reason=reason)
        self._warn(f"drafter {drafter} failed: {error}")

    def _refuse(self, error: Exception, sender: Any) -> None:
        """Send the error of a request that was not admitted, and count the request."""
        self._log_unexpected(error)
        error_type = error.error_type if isinstance(error, SpecdecError) else "internal"
        if isinstance(error, OverloadedError | ShuttingDownError):
            self._metrics.add(Counter.shed_total, reason=error_type)
        self._metrics.add(Counter.requests_total, outcome=error_type)
        self._outbox.put_last(sender, lambda: error_response(error))

    @staticmethod
    def _inform(text: str) -> None:
        pb_utils.Logger.log_info(f"[specdec] {text}")

    @staticmethod
    def _warn(text: str) -> None:
        pb_utils.Logger.log_warn(f"[specdec] {text}")

    @staticmethod
    def _log_unexpected(error: Exception) -> None:
        if not isinstance(error, SpecdecError):
            text = "".join(traceback.format_exception(error))
            pb_utils.Logger.log_error(f"[specdec] an unexpected failure: {text}")
