"""The scheduler: it runs a model pass by pass; tasks join and leave between passes."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from specdec.acceptance.exact import Verdict
from specdec.errors import ConfigurationError
from specdec.health.occupancy import Occupancy
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.heads.interface import NO_HEAD_PROPOSAL, HeadProposal
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.sampler import DrawnToken
from specdec.torch_engine.scheduling.admission import Admission
from specdec.torch_engine.scheduling.answers import has_end_token, output_of
from specdec.torch_engine.scheduling.chaining import num_tokens_at_once
from specdec.torch_engine.scheduling.drawing import draw
from specdec.torch_engine.scheduling.failures import PassFailures, failure_of, send_last
from specdec.torch_engine.scheduling.head_pass import read, readings_of
from specdec.torch_engine.scheduling.pace import Pace
from specdec.torch_engine.scheduling.round_waiting import RoundWaiting
from specdec.torch_engine.scheduling.running import RunningTask
from specdec.torch_engine.scheduling.selection import Chunk, select
from specdec.torch_engine.scheduling.verification import shared_with, verify
from specdec.torch_engine.task import EMPTY_OUTPUT, Receiver, Task, TaskOutput, fit

logger = logging.getLogger(__name__)


class Scheduler:
    """All tasks of one model, waiting and running; used by the engine's thread only."""

    def __init__(self, model: LlamaModel, limits: EngineLimits) -> None:
        self._model = model
        self._limits = limits
        self._admission = Admission(model.cache, limits)
        self._round_waiting = RoundWaiting()
        self._pace = Pace()
        self._running: list[RunningTask] = []

    @property
    def vocab_size(self) -> int:
        return self._model.config.vocab_size

    @property
    def has_work(self) -> bool:
        return self._admission.has_waiting or bool(self._running)

    @property
    def occupancy(self) -> Occupancy:
        """How full the engine was when the last pass began."""
        return self._admission.occupancy

    def check(self, task: Task) -> Task:
        """Return the task as it will run, cut to the engine's limits (see `fit`).

        Raises InvalidRequestError if its inputs are invalid or above the engine's limits. Raises
        ConfigurationError if it asks for a head that the engine lacks, or for longer drafts.
        """
        limit = self._limits.max_draft_len
        if task.num_next is not None and self._model.drafting_head is None:
            raise ConfigurationError("num_next_drafts: this engine has no drafting head (head_dir)")
        if task.num_next is not None and task.num_next > limit:
            raise ConfigurationError(
                f"num_next_drafts is {task.num_next}; the limit is {limit} (max_draft_len)"
            )
        return fit(task, self._limits, self.vocab_size)

    def add(self, tasks: Sequence[Task], receive: Receiver) -> None:
        """Queue tasks that start together: a single one, or the paths of a tree.

        `receive` gets the outputs of all of them. Raises InvalidRequestError if one can never run.
        """
        self._admission.wait([self._admission.ticket(self.check(task), receive) for task in tasks])
        self._round_waiting.arrived(tasks[0].request_id, tasks[0].arrival_ns / 1e9)

    def forget_absent_callers(self) -> None:
        """Stop expecting rounds of callers that have been away for too long."""
        self._round_waiting.forget_absent()

    @property
    def wait_s(self) -> float:
        """Seconds that the next pass should wait for rounds that are about to arrive."""
        num_ready = len(self._running) + sum(1 for _ in self._admission.waiting)
        return self._round_waiting.wait_s(num_ready) if num_ready else 0.0

    def num_together(self, task: Task) -> int:
        """Return how many tasks like this one may run side by side; 0 if one alone is too large."""
        return self._admission.num_together(task)

    def is_cached(self, task: Task) -> bool:
        """Say whether the cache holds the task's whole context except the last token.

        If the task uses the drafting head, the head must have read these positions too.
        """
        is_read = task.num_next is not None
        num_cached = self._model.cache.num_cached(
            task.input_ids, is_read=is_read, salt=task.cache_salt
        )
        return num_cached == len(task.input_ids) - 1

    def cancel(self, request_id: str) -> None:
        """End every task with this id with an empty last output; an unknown id is no error."""
        for running in self._all():
            if running.task.request_id == request_id:
                self._finish(running)

    def step(self) -> None:
        """Admit waiting tasks, run one pass or chained steps, and hand every task its new tokens.

        An error of one task ends that task only; if it is a path of a tree, it ends the whole tree.
        Any other error is raised, and the caller must then end all tasks with `fail_all`.
        """
        for group in self._admission.enter():
            self._start(group)
        num_tokens = num_tokens_at_once(self._model, self._running, self._limits.max_num_tokens)
        if num_tokens > 1:
            self._run_chained(num_tokens)
        elif chunks := list(select(self._running, self._pace, self._limits.max_num_tokens)):
            self._run(chunks)

    def _run_chained(self, num_tokens: int) -> None:
        tasks, start_s, failures = [*self._running], time.perf_counter(), PassFailures()
        segments = [running.chunk(len(running.pending)) for running in tasks]
        draws = [running.draws(1)[0] for running in tasks]
        drawn = self._model.run_chained(segments, draws, num_tokens)
        for running, tokens in zip(tasks, drawn, strict=True):
            with failures.catching(running):
                self._conclude(running, Verdict(tuple(tokens), 0))
        self._end_failed(failures)
        seconds = (time.perf_counter() - start_s) / num_tokens
        self._pace.passed(seconds, num_rows=len(tasks), num_prompt_rows=0)

    def _run(self, chunks: Sequence[Chunk]) -> None:
        start_s, failures = time.perf_counter(), PassFailures()
        num_rows = sum(len(rows.tokens) for _, rows in chunks)
        num_prompt_rows = sum(len(rows.tokens) for each, rows in chunks if each.is_prompt)
        segments = [segment for _, segment in chunks]
        states: list[Tensor] | None = None
        if any(running.task.num_next is not None for running, _ in chunks):
            hidden, states = self._model.run_tapped(segments)
        else:
            hidden = self._model.run(segments)
        verdicts = self._verify(
            chunks, draw(self._model.sampler, hidden, chunks, failures), failures
        )
        readings = {} if states is None else readings_of(chunks, hidden, states, verdicts)
        # These readings come first. A proposal is part of the output, and the end of a tree may
        # discard the sequences of its paths.
        awaited = {
            running: each
            for running, each in readings.items()
            if each.num_draft_tokens or running.task.branch is not None
        }
        proposals = read(self._model, awaited)
        if not num_prompt_rows:
            self._round_waiting.passed(time.perf_counter() - start_s)
        for running, verdict in verdicts.items():
            with failures.catching(running):
                self._conclude(running, verdict, proposals.get(running, NO_HEAD_PROPOSAL))
        self._end_failed(failures)
        # Clients get their tokens before the head reads rows that serve only later proposals.
        later = {
            running: each
            for running, each in readings.items()
            if running not in awaited and each.sequence.blocks
        }
        read(self._model, later)
        seconds = time.perf_counter() - start_s
        self._pace.passed(seconds, num_rows=num_rows, num_prompt_rows=num_prompt_rows)

    def _verify(
        self,
        chunks: Sequence[Chunk],
        drawn: Sequence[Sequence[DrawnToken]],
        failures: PassFailures,
    ) -> dict[RunningTask, Verdict]:
        """Take the draws of a pass; return verdicts for tasks whose pending rows have all run."""
        verdicts: dict[RunningTask, Verdict] = {}
        for (running, segment), own in zip(chunks, drawn, strict=True):
            running.pending = running.pending[len(segment.tokens) :]
            running.drawn += own
            if not len(running.pending) and running not in failures:
                with failures.catching(running):
                    verdicts |= self._advance(running)
        return verdicts

    def _end_failed(self, failures: PassFailures) -> None:
        """End the tasks whose own rows failed, and the other paths of their trees."""
        for failed, error in failures.ended():
            for each in [*self._running]:
                if each is failed or each.is_path_beside(failed):
                    self._finish(each, error=error)

    def fail_all(self, error: Exception) -> None:
        """End every task, waiting or running, with `error`."""
        for running in self._all():
            try:
                self._finish(running, error=error)
            except Exception:  # The other tasks must get the error too.
                logger.exception("a task that failed was not cleaned up")

    def check_integrity(self) -> None:
        """Assert that no task runs and that no sequence or cache block is reserved."""
        assert not self._running
        self._admission.check_integrity()
        self._model.cache.check_integrity()

    def _all(self) -> list[RunningTask]:
        return [*self._admission.waiting, *self._running]

    def _start(self, group: list[RunningTask]) -> None:
        """Start the tasks of an admitted group; end them all if one of them cannot start."""
        try:
            for running in group:
                running.start(self._model.cache)
        except Exception as error:
            logger.exception("a task could not be started")
            for running in group:
                self._finish(running, error=failure_of("starting a task", error))
            return
        self._running += group

    def _advance(self, running: RunningTask) -> dict[RunningTask, Verdict]:
        """Verify a task whose pending rows have all run; return the new verdicts.

        A path of a tree yields none until the last path has run, which yields those of all paths.
        """
        branch = running.task.branch
        if branch is None:
            return {running: verify(running.task, running.drawn)}
        # `fit` may have shortened the draft.
        path = branch.path[: len(running.task.draft_ids)]
        verdict = branch.verifier.add(path, running.drawn)
        if verdict is None:
            return {}
        return {
            each: shared_with(verdict, each.task.draft_ids.tolist())
            for each in self._running
            if each.is_path_beside(running)
        }

    def _conclude(
        self, running: RunningTask, verdict: Verdict, proposal: HeadProposal = NO_HEAD_PROPOSAL
    ) -> None:
        """Hand out the tokens of a verdict and the head's proposal; end the task, or continue it.

        The end token is not handed out. Rejected draft tokens are cut from the cache.
        """
        task, stats = running.task, running.stats
        drawn, running.drawn = running.drawn, []
        ended = has_end_token(running, verdict)
        output = output_of(running, verdict, drawn, proposal)
        num_tokens, num_drafts = len(output.tokens), len(task.draft_ids)
        stats.num_accepted_tokens = min(verdict.num_accepted, num_tokens)
        stats.last_token_ns = time.monotonic_ns()
        stats.first_token_ns = stats.first_token_ns or stats.last_token_ns
        running.num_generated += num_tokens
        end = len(task.input_ids) + running.num_generated
        assert running.sequence is not None
        if num_drafts:
            num_kept = len(task.input_ids) + verdict.num_accepted
            self._model.cache.truncate(running.sequence, num_kept)
        elif ended:
            # Chained steps may have run beyond the end token.
            self._model.cache.truncate(running.sequence, end)
        if ended or num_drafts or running.num_generated == task.max_new_tokens:
            if task.is_round and not ended:
                self._round_waiting.answered(task.request_id)
            self._finish(running, output)
        else:
            running.receive(output)
            running.tokens[end - num_tokens : end] = output.tokens
            running.pending = running.tokens[end - 1 : end]

    def _finish(
        self,
        running: RunningTask,
        output: TaskOutput = EMPTY_OUTPUT,
        error: Exception | None = None,
    ) -> None:
        try:
            self._release(running, is_failed=error is not None)
        finally:
            send_last(running.receive, replace(output, stats=running.stats, error=error))

    def _release(self, running: RunningTask, *, is_failed: bool) -> None:
        """Give back the task's place in the queue, or its reservations and its sequence."""
        if not running.is_admitted:
            self._admission.give_up(running)
            return
        if running in self._running:
            self._running.remove(running)
        self._admission.leave(running)
        running.end(self._model.cache, is_failed=is_failed)
