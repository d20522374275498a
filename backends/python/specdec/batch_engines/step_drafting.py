"""Ask our drafters for the draft tokens of an engine's steps; it imports nothing of the engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from specdec.batch_drafting.batch_drafter import BATCH, BatchDrafter
from specdec.batch_drafting.building import RequestDrafterBuilder
from specdec.batch_drafting.draft_models import DraftModels
from specdec.batch_drafting.options import DraftingOptions
from specdec.batch_drafting.requests import RequestStart, RequestStep
from specdec.batch_engines.reports import StepReport
from specdec.batch_engines.requests import NewRequest, Running
from specdec.deployment.freshness import fingerprint_of, weights_of
from specdec.deployment.machine import machine
from specdec.deployment.versions import CHECKPOINT, served_version
from specdec.drafting.copying.suffix import Memory
from specdec.drafting.protocol import Proposal
from specdec.errors import SpecdecError
from specdec.round_records import DraftRecord, RoundRecord
from specdec.settings.batch_engine import BatchEngineSettings
from specdec.steering.controller import Controller
from specdec.steering.kept_measurements import KeptMeasurements
from specdec.steering.load import Load
from specdec.steering.state_file import StateFile

logger = logging.getLogger("specdec.drafters")

REPORT_PERIOD_S = 1.0
"""Least seconds between two reports on a task."""


class StepDrafting:
    """The drafters of one engine.

    All methods but `failed` are called on the thread that runs the engine's steps.
    """

    def __init__(
        self,
        settings: BatchEngineSettings,
        version_directory: Path,
        report: Callable[[StepReport], None],
        draft_models: DraftModels | None = None,
        *,
        reports_drafts: bool = False,
    ) -> None:
        """Load the controller's measurements, and start drafting.

        Relative paths in `settings` start at `version_directory`. `report` gets a report of each
        step. `draft_models` may be None if the settings name none. With `reports_drafts` the report
        has the drafts for the next step in place of the rounds of this one. Raises
        ConfigurationError if the file of a scripted drafter is wrong.
        """
        load, memory = Load(), Memory()
        self.controller = Controller(settings.control.controller)
        builder = RequestDrafterBuilder(
            settings.drafters, settings.max_draft_len, self.controller, load, memory
        )
        self._batch = BatchDrafter(
            builder.build,
            load,
            settings.draft_budget_ms / 1000,
            draft_models,
            remember=memory.learn,
            report_failure=self.failed,
        )
        self._kept = _kept_measurements(self.controller, settings, version_directory)
        self._send = report
        self._reports_drafts = reports_drafts
        self._failures: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._running: dict[str, Running] = {}
        self._num_scheduled: Mapping[str, int] | None = None
        self._ended_tasks: set[str] = set()
        self._reported_s: dict[str, float] = {}
        self._head_length = settings.drafters.head_num_draft_tokens
        self.num_own_draft: int | None = None
        """Most draft tokens of the engine's own drafter that any request can use after this step.
        With 0 it need only read along, with None it may be left out."""

    def begin_step(
        self,
        new: Sequence[NewRequest],
        finished: Collection[str],
        num_scheduled: Mapping[str, int] | None = None,
    ) -> None:
        """Take the requests that begin and end, and the draft tokens that the step verifies.

        `finished` are the ids of requests that ended since the last step. `num_scheduled` has the
        number of draft tokens by id; requests without any may be missing. None if all that were
        proposed are verified.
        """
        self._num_scheduled = num_scheduled
        for step_id in finished:
            self._end(step_id)
        self._begin(new)
        wanted = [self.num_own_draft]
        wanted += [each.num_after_prompt for each in self._running.values() if each.is_reading]
        self.num_own_draft = max((each for each in wanted if each is not None), default=None)

    def end_step(
        self,
        step_ids: Sequence[str],
        sampled: Sequence[Sequence[int]],
        own_drafts: Mapping[str, Sequence[int]],
    ) -> list[list[int]]:
        """Take the tokens of a step, and return the draft tokens for the next one.

        `own_drafts` has the draft tokens of the engine's own drafter by id.
        """
        ours: list[Running] = []
        steps: list[RequestStep] = []
        scheduled = self._num_scheduled
        for step_id, tokens in zip(step_ids, sampled, strict=True):
            running = self._running.get(step_id)
            if running is None or running.is_complete:
                continue
            kept, ended = running.confirm(tokens)
            if running.is_complete:
                # The report must come before the last tokens; `_end` is called a step later.
                self._ended_tasks.add(running.task)
            ours.append(running)
            steps.append(
                RequestStep(
                    step_id,
                    kept,
                    scheduled.get(step_id, 0) if scheduled is not None else None,
                    tuple(own_drafts.get(step_id, ())),
                    ended,
                )
            )
        begun_s = time.perf_counter()
        found = self._batch.step(steps)
        draft_s = time.perf_counter() - begun_s
        self.num_own_draft = found.num_own_draft
        records: dict[str, RoundRecord | DraftRecord] = {}
        drafts: dict[str, list[int]] = {}
        for running, step, proposal, confirmed in zip(
            ours, steps, found.proposals, found.rounds, strict=True
        ):
            drafts[step.request_id] = list(proposal.tokens)
            if self._reports_drafts and proposal.tokens:
                records[running.request_id] = _draft_record(running, proposal, draft_s)
            elif not self._reports_drafts and confirmed is not None:
                first = running.num_tokens - len(confirmed.tokens)
                records[running.request_id] = RoundRecord.of(confirmed, first)
        self._report(records)
        return [drafts.get(each, []) for each in step_ids]

    def finish(self, step_id: str, tokens: Sequence[int]) -> None:
        """Take the tokens of a request's last step, and end the request."""
        running = self._running.get(step_id)
        last = None
        if running is not None and not running.is_complete:
            kept, ended = running.confirm(tokens)
            last = RequestStep(step_id, kept, ended=ended)
        self._end(step_id, last)
        self._report({})

    def close(self) -> None:
        """End the drafters, and write the controller's state file a last time."""
        self._batch.close()
        self._kept.close()

    def _begin(self, new: Sequence[NewRequest]) -> None:
        starts, request_ids = [], []
        for each in new:
            given = dict(each.options)
            request_ids.append(given.pop("id"))
            prompt, options = np.asarray(each.prompt, np.int32), DraftingOptions.from_json(given)
            starts.append(RequestStart(each.step_id, prompt, options))
        own_drafter_reads = self._batch.begin(starts)
        for each, start, request_id, reads in zip(
            new, starts, request_ids, own_drafter_reads, strict=True
        ):
            length = start.options.num_draft_tokens or self._head_length
            self._running[each.step_id] = Running(
                each, request_id, start.options.task, length if reads else None
            )

    def _end(self, step_id: str, last: RequestStep | None = None) -> None:
        running = self._running.pop(step_id, None)
        if running is not None:
            # Engines end an answer by a stop word as they end a cancelled one. What there is of
            # either is worth learning from.
            self._batch.end(step_id, is_complete=not running.is_reading, last=last)
            self._ended_tasks.add(running.task)

    def _report(self, records: Mapping[str, RoundRecord | DraftRecord]) -> None:
        failures = [self._failures.get() for _ in range(self._failures.qsize())]
        tasks, now_s = {}, time.monotonic()
        for task in [*self._ended_tasks]:
            if now_s - self._reported_s.get(task, -REPORT_PERIOD_S) < REPORT_PERIOD_S:
                continue
            self._ended_tasks.discard(task)
            self._reported_s[task] = now_s
            report = self.controller.take_report(task)
            if report is not None:
                tasks[task] = report.to_json()
        self._send(StepReport(records, tasks, failures))

    def step_failed(self, error: Exception) -> None:
        """Report that a call of this object failed, at once: later steps may not ask it."""
        self.failed(BATCH, error)
        self._report({})

    def failed(self, drafter: str, error: Exception) -> None:
        """Report a failure of a drafter, or of all under the name BATCH."""
        reason = error.error_type if isinstance(error, SpecdecError) else "internal"
        self._failures.put((drafter, reason))
        logger.warning("drafter %s failed: %s", drafter, error)


def _draft_record(running: Running, proposal: Proposal, draft_s: float) -> DraftRecord:
    return DraftRecord(
        running.num_tokens,
        proposal.tokens,
        proposal.sources_of(proposal.tokens),
        proposal.drafter or "",
        draft_s,
    )


def _kept_measurements(
    controller: Controller, settings: BatchEngineSettings, version_directory: Path
) -> KeptMeasurements:
    """Return the files of the controller's measurements."""
    checkpoint = version_directory / settings.checkpoint_dir
    fingerprint = fingerprint_of(checkpoint) or str(settings.checkpoint_dir)
    signature = "|".join((settings.kind, *settings.drafters.names, fingerprint))

    def weights() -> dict[str, str]:
        """Return the hash of the weights of each drafter that is a model."""
        folder, names = settings.own_drafter_dir, settings.drafters.heads
        own = dict.fromkeys(names, weights_of(version_directory / folder)) if folder else {}
        repository = version_directory.parents[1]
        served = {
            name: served_version(repository / name) for name in settings.drafters.draft_models
        }
        return own | {name: weights_of(each / CHECKPOINT) for name, each in served.items() if each}

    def state_file(name: str) -> StateFile | None:
        if not name:
            return None
        return StateFile(version_directory / name, signature, machine(), weights)

    return KeptMeasurements(
        controller,
        state_file(settings.control.state_file),
        state_file(settings.control.profile),
        logger.info,
        logger.warning,
    )
