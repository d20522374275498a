"""The scheduler: it runs a model pass by pass; tasks join and leave between passes."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from specdec.acceptance.exact import Verdict
from specdec.acceptance.sampling import Draw
from specdec.errors import ConfigurationError
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.heads.interface import NO_HEAD_PROPOSAL, HeadProposal
from specdec.torch_engine.model import LlamaModel, Segment
from specdec.torch_engine.sampler import Choice
from specdec.torch_engine.scheduling.admission import Admission
from specdec.torch_engine.scheduling.failures import PassFailures, failure_of, send_last
from specdec.torch_engine.scheduling.head_pass import read, readings_of
from specdec.torch_engine.scheduling.leaping import num_tokens_at_once
from specdec.torch_engine.scheduling.pace import Pace
from specdec.torch_engine.scheduling.round_waiting import RoundWaiting
from specdec.torch_engine.scheduling.running import RunningTask
from specdec.torch_engine.scheduling.selection import select
from specdec.torch_engine.scheduling.verification import shared_with, verify
from specdec.torch_engine.task import NO_OUTPUT, Receiver, Task, TaskOutput, fit

logger = logging.getLogger(__name__)


class Scheduler:
    """All tasks of one model, waiting and running; used by the engine's thread only."""

    def __init__(self, model: LlamaModel, limits: EngineLimits) -> None:
        self._model = model
        self._sampler = model.sampler
        self._limits = limits
        self._admission = Admission(model.cache, limits)
        self._rendezvous = RoundWaiting()
        self._pace = Pace()
        self._running: list[RunningTask] = []

    @property
    def vocab_size(self) -> int:
        return self._model.config.vocab_size

    @property
    def has_work(self) -> bool:
        return bool(self._admission or self._running)

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
        self._rendezvous.arrived(tasks[0].request_id, tasks[0].arrival_ns / 1e9)

    @property
    def wait_s(self) -> float:
        """Seconds that the next pass should wait for rounds that are about to arrive."""
        num_ready = len(self._running) + sum(1 for _ in self._admission.waiting)
        return self._rendezvous.wait_s(num_ready) if num_ready else 0.0

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
        """Admit waiting tasks, run one pass or leap, and hand every task its new tokens.

        An error of one task ends that task only; if it is a path of a tree, it ends the whole tree.
        Any other error is raised, and the caller must then end all tasks with `fail_all`.
        """
        for group in self._admission.enter():
            self._start(group)
        failures = PassFailures()
        num_tokens = num_tokens_at_once(self._model, self._running, self._limits.max_num_tokens)
        start_s = time.perf_counter()
        if num_tokens > 1:
            num_tasks = len(self._running)
            self._leap(num_tokens, failures)
            self._end_failed(failures)
            seconds = (time.perf_counter() - start_s) / num_tokens
            self._pace.passed(seconds, num_rows=num_tasks, num_prompt_rows=0)
            return
        chunks = list(select(self._running, self._pace, self._limits.max_num_tokens))
        if not chunks:
            return
        num_prompt_rows = sum(len(rows.tokens) for each, rows in chunks if each.is_prompt)
        num_rows = sum(len(rows.tokens) for _, rows in chunks)
        segments = [segment for _, segment in chunks]
        states: list[Tensor] | None = None
        if any(running.task.num_next is not None for running, _ in chunks):
            hidden, states = self._model.run_tapped(segments)
        else:
            hidden = self._model.run(segments)
        verdicts = self._draw_and_judge(hidden, chunks, failures)
        readings = {} if states is None else readings_of(chunks, hidden, states, verdicts)
        # These readings come first. A proposal is part of the output, and the end of a tree may
        # discard the sequences of its paths.
        awaited = {
            running: each
            for running, each in readings.items()
            if each.num_guesses or running.task.branch is not None
        }
        guesses = read(self._model, awaited)
        if not num_prompt_rows:
            self._rendezvous.passed(time.perf_counter() - start_s)
        for running, verdict in verdicts.items():
            with failures.alone(running):
                self._conclude(running, verdict, guesses.get(running, NO_HEAD_PROPOSAL))
        self._end_failed(failures)
        # Clients get their tokens before the head reads rows that serve only later proposals.
        read(
            self._model,
            {
                running: each
                for running, each in readings.items()
                if running not in awaited and each.sequence.blocks
            },
        )
        self._pace.passed(
            time.perf_counter() - start_s, num_rows=num_rows, num_prompt_rows=num_prompt_rows
        )

    def _draw_and_judge(
        self,
        hidden: Tensor,
        chunks: Sequence[tuple[RunningTask, Segment]],
        failures: PassFailures,
    ) -> dict[RunningTask, Verdict]:
        """Draw the tokens of a pass; return verdicts for the tasks whose pending rows have all run.

        `hidden` holds the asked rows of all chunks in order.
        """
        draws = [running.draws(segment.num_logits) for running, segment in chunks]
        choices = self._choose(hidden, draws, [running for running, _ in chunks], failures)
        verdicts: dict[RunningTask, Verdict] = {}
        for (running, segment), chosen in zip(chunks, choices, strict=True):
            running.pending = running.pending[len(segment.tokens) :]
            running.choices += chosen
            if not len(running.pending) and running not in failures:
                with failures.alone(running):
                    verdicts |= self._advance(running)
        return verdicts

    def _choose(
        self,
        hidden: Tensor,
        draws: Sequence[Sequence[Draw]],
        tasks: Sequence[RunningTask],
        failures: PassFailures,
    ) -> list[list[Choice]]:
        """Draw for all tasks together; if that fails, draw for each alone to find the one at fault.

        A row's result does not depend on other rows, so the other tasks get the same tokens.
        """
        try:
            return self._sampler.choose(hidden, draws)
        except Exception:  # noqa: BLE001 - raised again below, for its task
            choices: list[list[Choice]] = []
            start = 0
            for running, own in zip(tasks, draws, strict=True):
                rows = hidden[start : start + len(own)]
                start += len(own)
                choices.append([])
                with failures.alone(running):
                    rows = torch.cat((rows, rows)) if len(own) == 1 else rows
                    choices[-1:] = self._sampler.choose(rows, [own])
            return choices

    def _end_failed(self, failures: PassFailures) -> None:
        """End the tasks whose own rows failed, and the other paths of their trees."""
        for failed, error in failures.ended():
            branch = failed.task.branch
            for each in [*self._running]:
                is_of_same_tree = (
                    branch is not None
                    and each.task.branch is not None
                    and each.task.branch.verifier is branch.verifier
                )
                if each is failed or is_of_same_tree:
                    self._finish(each, error=error)

    def _leap(self, num_tokens: int, failures: PassFailures) -> None:
        tasks = [*self._running]
        segments = [running.chunk(len(running.pending)) for running in tasks]
        draws = [running.draws(1)[0] for running in tasks]
        said = self._model.leap(segments, draws, num_tokens)
        for running, tokens in zip(tasks, said, strict=True):
            with failures.alone(running):
                self._conclude(running, Verdict(tuple(tokens), 0))

    def fail_all(self, error: Exception) -> None:
        """End every task, waiting or running, with `error`."""
        for running in self._all():
            try:
                self._finish(running, error=error)
            except Exception:  # The other tasks must get the error too.
                logger.exception("a task that failed left something behind")

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
                self._acquire(running)
        except Exception as error:
            logger.exception("a task could not be started")
            for running in group:
                self._finish(running, error=failure_of("starting a task", error))
            return
        self._running += group

    def _acquire(self, running: RunningTask) -> None:
        task = running.task
        is_read = task.num_next is not None
        running.sequence = self._model.cache.acquire(
            task.input_ids, is_read=is_read, salt=task.cache_salt
        )
        running.stats.num_reused_blocks = len(running.sequence.blocks)
        running.stats.first_scheduled_ns = time.monotonic_ns()
        running.pending = np.concatenate(
            (task.input_ids[running.sequence.length :], task.draft_ids)
        )
        running.num_asked = 1 + len(task.draft_ids)

    def _advance(self, running: RunningTask) -> dict[RunningTask, Verdict]:
        """Verify a task whose pending rows have all run; return the new verdicts.

        A path of a tree yields none until the last path has run, which yields those of all paths.
        """
        branch = running.task.branch
        if branch is None:
            return {running: verify(running.task, running.choices)}
        # `fit` may have shortened the draft.
        path = branch.path[: len(running.task.draft_ids)]
        verdict = branch.verifier.add(path, running.choices)
        if verdict is None:
            return {}
        return {
            each: shared_with(verdict, each.task.draft_ids.tolist())
            for each in self._running
            if each.task.branch is not None and each.task.branch.verifier is branch.verifier
        }

    def _conclude(
        self, running: RunningTask, verdict: Verdict, guesses: HeadProposal = NO_HEAD_PROPOSAL
    ) -> None:
        """Hand out the tokens of a verdict and the head's proposal; end the task, or continue it.

        The end token is not handed out. Rejected draft tokens are cut from the cache.
        """
        task, stats = running.task, running.stats
        num_drafts = len(task.draft_ids)
        choices, running.choices = running.choices, []
        tokens = verdict.tokens[: task.max_new_tokens - running.num_generated]
        ended = task.end_id is not None and task.end_id in tokens
        if ended:
            tokens = tokens[: tokens.index(task.end_id)]
        stats.num_accepted_tokens = min(verdict.num_accepted, len(tokens))
        said = TaskOutput(
            tokens,
            tuple(
                choice.log_prob(token)
                for choice, token in zip(choices, tokens, strict=False)
                if task.wants_log_probs
            ),
            tuple(
                choice.logits.cpu().numpy()
                for choice in choices[: len(tokens)]
                if task.wants_logits and choice.logits is not None
            ),
            *(NO_HEAD_PROPOSAL if ended else guesses),
        )
        if num_drafts:
            assert running.sequence is not None
            num_kept = len(task.input_ids) + verdict.num_accepted
            self._model.cache.truncate(running.sequence, num_kept)
        stats.last_token_ns = time.monotonic_ns()
        stats.first_token_ns = stats.first_token_ns or stats.last_token_ns
        running.num_generated += len(tokens)
        end = len(task.input_ids) + running.num_generated
        if ended and not num_drafts:
            assert running.sequence is not None
            # A leap may have run beyond the end token.
            self._model.cache.truncate(running.sequence, end)
        if ended or num_drafts or running.num_generated == task.max_new_tokens:
            if task.is_round and not ended:
                self._rendezvous.answered(task.request_id)
            self._finish(running, said)
        else:
            running.receive(said)
            running.text[end - len(tokens) : end] = tokens
            running.pending = running.text[end - 1 : end]

    def _finish(
        self,
        running: RunningTask,
        said: TaskOutput = NO_OUTPUT,
        error: Exception | None = None,
    ) -> None:
        try:
            self._release(running, is_failed=error is not None)
        finally:
            send_last(running.receive, replace(said, stats=running.stats, error=error))

    def _release(self, running: RunningTask, *, is_failed: bool) -> None:
        """Give back the task's place in the queue, or its reservations and its sequence."""
        if not running.is_admitted:
            self._admission.give_up(running)
            return
        if running in self._running:
            self._running.remove(running)
        self._admission.leave(running)
        if running.sequence is not None:
            running.stats.num_new_blocks = (
                len(running.sequence.blocks) - running.stats.num_reused_blocks
            )
            if not is_failed:
                self._model.cache.release(running.sequence)
                if running.task.branch is not None:
                    self._model.cache.drop_copies(running.sequence)
            else:
                # The failed pass may have written only some of the keys and values.
                self._model.cache.discard(running.sequence, is_failed=True)
