"""Ask our drafters for the draft tokens of vLLM's steps; it imports nothing of vLLM."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specdec.batch_drafting.batch_drafter import BatchDrafter
from specdec.batch_drafting.building import RequestDrafterBuilder
from specdec.batch_drafting.options import DraftingOptions
from specdec.batch_drafting.requests import RequestStep
from specdec.deployment.freshness import fingerprint_of, weights_of
from specdec.deployment.machine import machine
from specdec.drafting.copying.suffix import Memory
from specdec.errors import SpecdecError
from specdec.round_records import RoundRecord
from specdec.settings.vllm_engine import VllmModelSettings
from specdec.steering.choices import NONE
from specdec.steering.controller import Controller
from specdec.steering.kept_measurements import KeptMeasurements
from specdec.steering.load import Load
from specdec.steering.state_file import StateFile
from specdec.vllm_engine.reports import ReportSender

logger = logging.getLogger("vllm.specdec")

REPORT_PERIOD_S = 1.0
"""Least seconds between two reports on a task."""


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request that vLLM schedules for the first time."""

    step_id: str
    """The id by which vLLM's steps name it."""
    prompt: Sequence[int]
    max_tokens: int
    min_tokens: int
    end_ids: frozenset[int]
    """Tokens that end the answer."""
    options: Mapping[str, Any]
    """The request's id under `id`, and its drafting options."""


@dataclass(slots=True)
class _Running:
    """A running request."""

    request: NewRequest
    request_id: str
    task: str
    num_after_prompt: int | None
    """Draft tokens of the engine's own drafter that it can use after its prompt; None if none."""
    num_tokens: int = 0
    """Confirmed tokens, without the end token."""
    has_ended: bool = False

    @property
    def is_reading(self) -> bool:
        """Whether vLLM still reads the prompt."""
        return not (self.num_tokens or self.has_ended)

    @property
    def is_complete(self) -> bool:
        return self.has_ended or self.num_tokens >= self.request.max_tokens

    def confirm(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], bool]:
        """Return the tokens up to the answer's end without the end token, and whether it came."""
        request = self.request
        kept = tuple(tokens[: request.max_tokens - self.num_tokens])
        for index, token in enumerate(kept):
            if token in request.end_ids and self.num_tokens + index >= request.min_tokens:
                kept, self.has_ended = kept[:index], True
                break
        self.num_tokens += len(kept)
        return kept, self.has_ended


class StepDrafting:
    """The drafters of one vLLM worker. Its methods are called by the worker in each step."""

    def __init__(
        self, settings: VllmModelSettings, version_directory: Path, reports: ReportSender
    ) -> None:
        """Load the controller's measurements, and start drafting.

        Relative paths in `settings` start at `version_directory`. Raises ConfigurationError if the
        file of a scripted drafter is wrong.
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
            remember=memory.learn,
            report_failure=self.failed,
        )
        self._kept = _kept(self.controller, settings, version_directory)
        self._reports = reports
        self._failures: list[tuple[str, str]] = []
        self._running: dict[str, _Running] = {}
        self._num_scheduled: Mapping[str, int] = {}
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
        num_scheduled: Mapping[str, int],
    ) -> None:
        """Take the requests that begin and end, and the draft tokens that the step verifies.

        `finished` are the ids of requests that ended since the last step. `num_scheduled` has the
        number of draft tokens by id; requests without any may be missing.
        """
        self._num_scheduled = num_scheduled
        for step_id in finished:
            self._end(step_id)
        for each in new:
            self._begin(each)
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
        ours: list[_Running] = []
        steps: list[RequestStep] = []
        for step_id, tokens in zip(step_ids, sampled, strict=True):
            running = self._running.get(step_id)
            if running is None or running.is_complete:
                continue
            kept, ended = running.confirm(tokens)
            ours.append(running)
            steps.append(
                RequestStep(
                    step_id,
                    kept,
                    self._num_scheduled.get(step_id, 0),
                    tuple(own_drafts.get(step_id, ())),
                    ended,
                )
            )
        found = self._batch.step(steps)
        self.num_own_draft = found.num_own_draft
        drafts = {
            step.request_id: list(tokens) for step, tokens in zip(steps, found.tokens, strict=True)
        }
        self._report(
            {
                running.request_id: RoundRecord.of(confirmed).to_json()
                for running, confirmed in zip(ours, found.rounds, strict=True)
                if confirmed is not None
            }
        )
        return [drafts.get(each, []) for each in step_ids]

    def close(self) -> None:
        """End the drafters, and write the controller's state file a last time."""
        self._batch.close()
        self._kept.close()
        self._reports.close()

    def _begin(self, new: NewRequest) -> None:
        given = dict(new.options)
        request_id = given.pop("id")
        options = DraftingOptions.from_json(given)
        asked = options.num_draft_tokens
        num_own = None if options.drafter == NONE or asked == 0 else asked or self._head_length
        self._running[new.step_id] = _Running(new, request_id, options.task, num_own)
        self._batch.begin(new.step_id, np.asarray(new.prompt, dtype=np.int32), options)

    def _end(self, step_id: str) -> None:
        running = self._running.pop(step_id, None)
        if running is not None:
            # vLLM ends an answer by a stop word as it ends a cancelled one. What there is of either
            # is worth learning from.
            self._batch.end(step_id, is_complete=not running.is_reading)
            self._ended_tasks.add(running.task)

    def _report(self, rounds: Mapping[str, Any]) -> None:
        failures, self._failures = self._failures, []
        tasks, now_s = {}, time.monotonic()
        for task in [*self._ended_tasks]:
            if now_s - self._reported_s.get(task, -REPORT_PERIOD_S) < REPORT_PERIOD_S:
                continue
            self._ended_tasks.discard(task)
            self._reported_s[task] = now_s
            report = self.controller.take_report(task)
            if report is not None:
                tasks[task] = report.to_json()
        self._reports.send({"rounds": rounds, "tasks": tasks, "failures": failures})

    def failed(self, drafter: str, error: Exception) -> None:
        """Report a failure of a drafter, or of all under the name BATCH."""
        reason = error.error_type if isinstance(error, SpecdecError) else "internal"
        self._failures.append((drafter, reason))
        logger.warning("drafter %s failed: %s", drafter, error)


def _kept(
    controller: Controller, settings: VllmModelSettings, version_directory: Path
) -> KeptMeasurements:
    """Return the files of the controller's measurements."""
    checkpoint = version_directory / settings.checkpoint_dir
    fingerprint = fingerprint_of(checkpoint) or str(settings.checkpoint_dir)
    signature = "|".join(("vllm", *settings.drafters.names, fingerprint))

    def weights() -> dict[str, str]:
        """Return the hash of the weights of vLLM's own drafter."""
        folder, names = settings.vllm_drafter_dir, settings.drafters.heads
        return dict.fromkeys(names, weights_of(version_directory / folder)) if folder else {}

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
