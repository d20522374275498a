"""The answers that an engine generates: from a task to its outputs, with the rounds of each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from specdec.batch_engines.generator import Generator, Part
from specdec.batch_engines.reports import Reports
from specdec.errors import EngineFailedError, EngineLostError, SpecdecError
from specdec.health.board import Heartbeat, State
from specdec.round_records import DraftingReport, Rounds
from specdec.torch_engine.scheduling.failures import failure_of, send_last
from specdec.torch_engine.task import Receiver, Task, TaskOutput, TaskStats

logger = logging.getLogger("specdec.answers")

BEAT_S = 0.5
"""Seconds between two looks at the engine's progress, for the heartbeat."""


class Answer:
    """The answer to one task."""

    def __init__(
        self, task: Task, call_id: str, task_label: str, receive: Receiver, rounds: Rounds
    ) -> None:
        """Take the task, whose id is unique, and the id of the call, which callers choose.

        `task_label` is the label of the client's task, under which acceptance is measured.
        """
        self.task = task
        self.call_id = call_id
        self.task_label = task_label
        self.receive = receive
        self.rounds = rounds
        self.running: asyncio.Task[None] | None = None
        self.has_begun = False
        """Whether `running` has begun, so that it can be cancelled."""
        self.is_stopped = False
        """Whether the answer must end early."""
        self.is_cancelled = False
        """Whether its caller cancelled it."""
        self._stats = TaskStats(arrival_ns=task.arrival_ns)

    def output(self, part: Part) -> TaskOutput:
        """Return the task's next output, with the rounds of its tokens."""
        rounds, stats = self.rounds.take(part.tokens, ended=part.ended), self._stats
        stats.last_token_ns = time.monotonic_ns()
        stats.first_token_ns = stats.first_token_ns or stats.last_token_ns
        stats.num_draft_tokens += sum(each.num_draft_tokens for each in rounds)
        stats.num_accepted_tokens += sum(len(each.accepted_sources) for each in rounds)
        return TaskOutput(
            part.tokens,
            part.log_probs,
            drafting=DraftingReport(rounds),
            top_log_probs=part.top_log_probs,
        )

    def last(self, output: TaskOutput, report: DraftingReport) -> TaskOutput:
        """Return an output as the last one, with `report`."""
        assert output.drafting is not None
        drafting = replace(report, rounds=output.drafting.rounds)
        return replace(output, drafting=drafting, stats=self._stats)


class PendingReports:
    """Task reports and failures of drafters that wait for the next answer that ends."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, Any]] = {}
        self._failures: list[tuple[str, str]] = []

    def add(self, tasks: Mapping[str, dict[str, Any]], failures: Sequence[tuple[str, str]]) -> None:
        """Add reports by task. A newer one replaces an older, but switches add up."""
        for label, report in tasks.items():
            earlier = self._tasks.get(label, {}).get("num_switches", (0, 0))
            pairs = zip(earlier, report["num_switches"], strict=True)
            self._tasks[label] = {**report, "num_switches": [sum(pair) for pair in pairs]}
        self._failures += failures

    def take(self, task_label: str) -> DraftingReport:
        """Return the report on a task and all failures, and forget them."""
        failures, self._failures = tuple(self._failures), []
        return DraftingReport(task=self._tasks.pop(task_label, None), failures=failures)


class Answers:
    """All running answers of one engine. Its methods run on the engine's asyncio loop."""

    def __init__(self, generator: Generator, reports: Reports, heartbeat: Heartbeat) -> None:
        """Take the engine, and the reports of its drafters."""
        self._generator = generator
        self._reports = reports
        self._heartbeat = heartbeat
        self._running: dict[str, Answer] = {}
        self._pending = PendingReports()
        self._has_progressed = False
        self._ping: asyncio.Task[bool] | None = None

    def begin(self, answer: Answer, arguments: Any) -> None:
        """Begin an answer; its receiver gets one last output in any case.

        `arguments` are those of `Generator.generate`.
        """
        self._running[answer.task.request_id] = answer
        work = self._answer(answer, arguments)
        answer.running = asyncio.get_running_loop().create_task(work)

    def cancel(self, request_id: str) -> None:
        """End the answers to calls with this id; an unknown id is no error."""
        for answer in self._running.values():
            if answer.call_id == request_id:
                answer.is_cancelled = True
                _stop(answer)

    async def end_all(self) -> None:
        """End all answers, each with an error."""
        answers = [*self._running.values()]
        for answer in answers:
            _stop(answer)
        running = (each.running for each in answers if each.running is not None)
        await asyncio.gather(*running, return_exceptions=True)

    async def watch(self) -> None:
        """Report to the heartbeat that the engine progresses, or that there is nothing to do."""
        while not self._generator.has_failed:
            self._read_reports()
            if self._has_progressed or not self._running or self._has_answered():
                self._has_progressed = False
                self._heartbeat.beat(is_working=bool(self._running))
            await asyncio.sleep(BEAT_S)
        self._heartbeat.enter(State.FAILED)

    def _has_answered(self) -> bool:
        """Return whether the engine has answered a ping, and begin the next one.

        An engine that reads a long prompt sends neither tokens nor reports.
        """
        if self._ping is None:
            self._ping = asyncio.get_running_loop().create_task(self._generator.ping())
        if not self._ping.done():
            return False
        ended, self._ping = self._ping, None
        return not ended.cancelled() and ended.exception() is None and ended.result()

    async def _answer(self, answer: Answer, arguments: Any) -> None:
        answer.has_begun = True
        try:
            last = await self._generated(answer, arguments)
        except asyncio.CancelledError:
            last = _ended_early(answer)
        except SpecdecError as error:
            last = TaskOutput((), error=error)
        except Exception as error:  # noqa: BLE001 - the client gets it
            last = TaskOutput((), error=self._error_of(error))
        finally:
            self._running.pop(answer.task.request_id, None)
        send_last(answer.receive, last)

    async def _generated(self, answer: Answer, arguments: Any) -> TaskOutput:
        """Hand out all outputs of a task but the last one, and return that.

        Raises EngineFailedError if the engine ends the answer before it is complete.
        """
        if answer.is_stopped:
            return _ended_early(answer)
        last: TaskOutput | None = None
        async with aclosing(self._generator.generate(answer.task, arguments)) as parts:
            async for part in parts:
                self._has_progressed = True
                self._read_reports()
                output = answer.output(part)
                if part.is_last:
                    last = answer.last(output, self._pending.take(answer.task_label))
                else:
                    answer.receive(output)
        if last is None:
            name = self._generator.name
            raise EngineFailedError(f"{name} ended the answer without a last output")
        return last

    def _read_reports(self) -> None:
        """Take the reports of the steps that have ended."""
        for report in self._reports.read():
            self._has_progressed = True
            for request_id, record in report.records.items():
                answer = self._running.get(request_id)
                if answer is not None:
                    answer.rounds.add(record)
            self._pending.add(report.tasks, report.failures)
            if report.num_lost:
                logger.warning("the reports of %d steps were lost", report.num_lost)

    def _error_of(self, error: Exception) -> SpecdecError:
        """Return the error that a client gets for an exception of the engine."""
        found: SpecdecError | None = None
        with suppress(Exception):  # The client must get an error in any case.
            found = self._generator.error_of(error)
        if isinstance(found, EngineLostError):
            self._heartbeat.enter(State.FAILED)
        if found is not None:
            return found
        name = self._generator.name
        logger.error("a request failed in %s", name, exc_info=error)
        return failure_of(name, error)


def _stop(answer: Answer) -> None:
    # The engine's own abort must not be cancelled, so a second call has no effect.
    if answer.is_stopped:
        return
    answer.is_stopped = True
    # A task that is cancelled before it begins would end without a last output.
    if answer.has_begun and answer.running is not None:
        answer.running.cancel()


def _ended_early(answer: Answer) -> TaskOutput:
    """Return the last output of an answer that was stopped.

    Reports stay for another answer, because nobody reads this output.
    """
    if not answer.is_cancelled:
        return TaskOutput((), error=EngineFailedError("the engine is shutting down"))
    return answer.last(answer.output(Part(())), DraftingReport())
