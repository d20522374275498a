"""Assemble the parts of an orchestrator from its configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from specdec.constraints.compiler import GuideCompiler
from specdec.constraints.tokenizer import compiler_for
from specdec.deployment.freshness import FreshnessWatch
from specdec.deployment.load_check import check_repository
from specdec.deployment.machine import machine
from specdec.deployment.placement import PlacedEngines
from specdec.deployment.served_weights import ServedWeights
from specdec.health.assessment import hang_limit_s
from specdec.health.board import BoardHeartbeat, Role, State, board_directory
from specdec.health.occupancy import Occupancy
from specdec.round_records import DraftingReport
from specdec.serving.admission.admission import Admission
from specdec.serving.admission.in_flight import RequestsInFlight
from specdec.serving.admission.server_watch import ServerWatch
from specdec.serving.admission.tenant_shares import TenantShares
from specdec.serving.answer import Answerer, read_round_delay_s
from specdec.serving.control_plane import ControlPlane
from specdec.serving.drafters.building import DrafterFactory
from specdec.serving.drafters.cross_vocabulary import CrossVocabularyDraft
from specdec.serving.drafters.reports import DrafterReports
from specdec.serving.job_builder import JobBuilder
from specdec.serving.metrics.definitions import Gauge
from specdec.serving.metrics.recorder import MetricsRecorder
from specdec.serving.request.prompt_log import PromptLog
from specdec.serving.request.request import RequestLimits
from specdec.serving.responder import Responder
from specdec.serving.task_labels import TaskLabeler
from specdec.serving.text.tokenizing import Tokenizer
from specdec.serving.tracing import Tracing
from specdec.settings.control import ControlPlaneSettings
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.settings.parameters import own_config, read_parameters
from specdec.steering.state_file import StateFile
from specdec.steering.tasks import TaskReport
from specdec.triton_backend.log import inform, warn
from specdec.triton_backend.outbox import Outbox


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an orchestrator that requests meet, in their order."""

    admission: Admission
    requests: RequestsInFlight
    threads: ThreadPoolExecutor
    """Threads of admitted requests, one for each."""
    jobs: JobBuilder
    answerer: Answerer
    responder: Responder
    drafters: DrafterFactory
    plane: ControlPlane
    closing: tuple[Callable[[], object], ...]
    """Functions that close all parts, in order."""

    def close(self) -> None:
        """Wait for requests in flight, then end all threads and local engines."""
        for close in self.closing:
            close()


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The parts that read the repository's files, or measure while requests run."""

    settings: OrchestratorSettings
    tokenizer: Tokenizer
    guides: GuideCompiler
    engines: PlacedEngines
    metrics: MetricsRecorder
    plane: ControlPlane
    drafters: DrafterFactory
    reports: DrafterReports
    freshness: FreshnessWatch
    prompt_log: PromptLog | None


def assemble(args: Mapping[str, str], here: Path) -> Parts:
    """Build an orchestrator's parts, and report on the heartbeat board that it serves.

    `args` is what Triton passes to `initialize`; `here` is the model's folder of this version.
    Raises ConfigurationError if the parameters or files of the deployment are wrong.
    """
    config = json.loads(args["model_config"])
    settings = read_parameters(OrchestratorSettings, own_config(config))
    needs = (settings.engines.target,)
    heartbeat = BoardHeartbeat(args["model_name"], Role.ORCHESTRATOR, needs)
    labels = {"model": args["model_name"], "version": args["model_version"]}
    loaded = _load(settings, config, labels, here)
    parts = _connect(loaded, tuple(each["name"] for each in config["input"]), heartbeat)
    heartbeat.enter(State.SERVING)
    return parts


def _load(
    settings: OrchestratorSettings, config: Mapping[str, Any], labels: Mapping[str, str], here: Path
) -> _Loaded:
    tokenizer_dir = (here / settings.engines.tokenizer_dir).resolve()
    tokenizer = Tokenizer(tokenizer_dir)
    check_repository(here.parents[1], settings, tokenizer.model_vocab_size)
    other_vocabularies = _cross_vocabulary_drafts(settings.drafters.draft_tokenizers, here)
    engines = PlacedEngines(config, here)
    weights = ServedWeights(settings, engines)
    metrics = MetricsRecorder(labels)
    plane = _control_plane(settings.control, metrics, weights, here)
    reports = DrafterReports(metrics, plane.controller, settings.drafters.ids)
    log = settings.prompt_log
    log_folder = (here / log.directory).resolve()
    return _Loaded(
        settings=settings,
        tokenizer=tokenizer,
        guides=compiler_for(tokenizer_dir, tokenizer.model_vocab_size),
        engines=engines,
        metrics=metrics,
        plane=plane,
        drafters=DrafterFactory(
            settings,
            tokenizer,
            other_vocabularies,
            engines,
            plane.controller,
            plane.load,
            reports.failed,
        ),
        reports=reports,
        freshness=FreshnessWatch(weights.folders, reports.freshness, reports.replaced),
        prompt_log=PromptLog(log_folder, log, warn) if log.directory else None,
    )


def _connect(loaded: _Loaded, inputs: tuple[str, ...], heartbeat: BoardHeartbeat) -> Parts:
    """Return the parts; `inputs` has the names of the model's inputs."""
    settings, tokenizer, metrics = loaded.settings, loaded.tokenizer, loaded.metrics
    engines, drafters, plane = loaded.engines, loaded.drafters, loaded.plane
    answerer = Answerer(tokenizer, metrics, read_round_delay_s())
    labeler = TaskLabeler(settings.tasks, tokenizer)
    jobs = JobBuilder(
        settings.engines,
        tokenizer,
        engines,
        drafters,
        labeler,
        loaded.prompt_log,
        partial(_publish, plane, loaded.reports),
        loaded.guides,
    )
    outbox, tracing = Outbox(), Tracing(warn)
    requests = _requests_in_flight(loaded, heartbeat)
    watch = _server_watch(settings, requests, heartbeat, partial(_flush, outbox, loaded))
    threads = ThreadPoolExecutor(settings.admission.inflight_limit, thread_name_prefix="request")
    prompt_log_end = () if loaded.prompt_log is None else (loaded.prompt_log.close,)
    admission = Admission(inputs, _limits(settings, tokenizer), watch, requests, tracing)
    responder = Responder(requests, metrics, outbox)
    occupancy = engines.watch(partial(_show_occupancy, metrics))
    return Parts(
        admission=admission,
        requests=requests,
        threads=threads,
        jobs=jobs,
        answerer=answerer,
        responder=responder,
        drafters=drafters,
        plane=plane,
        closing=(
            threads.shutdown,
            watch.close,
            loaded.freshness.close,
            *prompt_log_end,
            outbox.close,
            # Closing the rest may take longer than the hang limit, so the heartbeat ends first.
            heartbeat.close,
            requests.close,
            plane.close,
            drafters.close,
            *(each.close for each in occupancy),
            engines.close,
            tracing.close,
            metrics.close,
        ),
    )


def _show_occupancy(metrics: MetricsRecorder, engine: str, now: Occupancy) -> None:
    """Show how full an engine in this process is."""
    metrics.set(Gauge.waiting_requests, now.num_waiting, model=engine)
    metrics.set(Gauge.kv_cache_usage, now.kv_cache_usage, model=engine)


def _publish(
    plane: ControlPlane, reports: DrafterReports, task: str, report: DraftingReport
) -> None:
    """Publish what a target with drafters inside reports beside a request's tokens."""
    if report.task is not None:
        plane.publish(task, TaskReport.from_json(report.task))
    for drafter, reason in report.failures:
        reports.count_inside(drafter, reason)


def _flush(outbox: Outbox, loaded: _Loaded) -> None:
    """Send queued responses, and write logged prompts and measurements to disk.

    The process is killed afterwards, so anything that is still queued would be lost.
    """
    outbox.flush()
    if loaded.prompt_log is not None:
        loaded.prompt_log.close()
    loaded.plane.close()


def _cross_vocabulary_drafts(
    folders: Mapping[str, str], here: Path
) -> dict[str, CrossVocabularyDraft]:
    drafts = {
        name: CrossVocabularyDraft.load((here / directory).resolve())
        for name, directory in folders.items()
    }
    for name, draft in drafts.items():
        inform(f"draft {name}: {draft}")
    return drafts


def _control_plane(
    settings: ControlPlaneSettings, metrics: MetricsRecorder, weights: ServedWeights, here: Path
) -> ControlPlane:
    def state_file(file: str) -> StateFile | None:
        """Return the state file at a path, which may be relative to `here`; None without a path."""
        if not file:
            return None
        path = (here / file).resolve()
        return StateFile(path, weights.signature(), machine(), weights.drafter_hashes)

    memory, profile = state_file(settings.state_file), state_file(settings.profile)
    return ControlPlane(settings.controller, metrics, memory, profile, inform, warn)


def _requests_in_flight(loaded: _Loaded, heartbeat: BoardHeartbeat) -> RequestsInFlight:
    settings, metrics, load = loaded.settings.admission, loaded.metrics, loaded.plane.load

    def count(num_inflight: int) -> None:
        load.set_inflight(num_inflight)
        metrics.set(Gauge.inflight_requests, num_inflight)

    metrics.set(Gauge.inflight_limit, settings.inflight_limit)
    shares = TenantShares(settings.inflight_limit, settings.max_tenant_share)
    period_s = settings.cancellation_check_period_ms / 1000
    return RequestsInFlight(shares, period_s, count, heartbeat)


def _server_watch(
    settings: OrchestratorSettings,
    requests: RequestsInFlight,
    heartbeat: BoardHeartbeat,
    flush: Callable[[], None],
) -> ServerWatch:
    return ServerWatch(
        requests,
        settings.engines.target,
        board_directory(),
        heartbeat,
        hang_limit_s(),
        flush,
        warn,
        exits_on_dead_engine=settings.admission.exit_on_dead_engine,
    )


def _limits(settings: OrchestratorSettings, tokenizer: Tokenizer) -> RequestLimits:
    engines = settings.engines
    return RequestLimits(
        tokenizer.vocab_size,
        engines.max_draft_len,
        settings.drafters.ids,
        engines.max_seq_len,
        tokenizer.max_text_bytes(engines.max_seq_len),
    )
