"""Which rows run in the next pass: requests join and leave between passes.

Tokens being generated and drafts being verified come first, so that no stream waits for another's
prompt; what is left of the pass's row budget goes to prompts, oldest first, in chunks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from specdec.acceptance.greedy import verify_chain
from specdec.errors import InvalidRequestError
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.kv_cache import BLOCK_SIZE, CachedSequence, TokenIds
from specdec.torch_engine.model import LlamaModel, Segment

NO_TOKENS: TokenIds = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One engine request: generate freely, or verify `draft_ids` in one pass and end."""

    request_id: str
    input_ids: TokenIds
    max_new_tokens: int
    draft_ids: TokenIds = field(default_factory=lambda: NO_TOKENS)
    end_id: int | None = None
    arrival_ns: int = field(default_factory=time.monotonic_ns)


@dataclass(slots=True)
class TaskStats:
    """What return_perf_metrics reports; times are time.monotonic_ns()."""

    arrival_ns: int = 0
    first_scheduled_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    num_reused_blocks: int = 0
    num_new_blocks: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """New tokens of a task (without its end token); `stats` on the last output only."""

    tokens: tuple[int, ...]
    stats: TaskStats | None = None
    error: Exception | None = None

    @property
    def is_final(self) -> bool:
        return self.stats is not None or self.error is not None


Receiver = Callable[[TaskOutput], None]


@dataclass(eq=False, slots=True)
class _Running:
    """A task on its way; `pending` tokens still have to run through the model."""

    task: Task
    receive: Receiver
    stats: TaskStats
    num_blocks: int
    sequence: CachedSequence | None = None
    pending: TokenIds = field(default_factory=lambda: NO_TOKENS)
    num_asked: int = 1
    """Rows at the end of `pending` whose next token is wanted."""
    choices: list[int] = field(default_factory=list)
    num_generated: int = 0

    def chunk(self, budget: int) -> Segment:
        """The next rows to run, `budget` at most."""
        assert self.sequence is not None
        size = min(len(self.pending), budget)
        num_left = len(self.pending) - size
        num_logits = max(0, min(size, self.num_asked - num_left))
        return Segment(self.sequence, self.pending[:size], num_logits)


class Scheduler:
    """Waiting and running tasks of one model; driven by the engine's thread."""

    def __init__(self, model: LlamaModel, limits: EngineLimits) -> None:
        self._model = model
        self._limits = limits
        self._waiting: deque[_Running] = deque()
        self._running: list[_Running] = []
        self._num_reserved_blocks = 0

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._running)

    def add(self, task: Task, receive: Receiver) -> None:
        """Queues a task. Raises InvalidRequestError for one that can never run."""
        task = fit(task, self._limits, self._model.config.vocab_size)
        num_tokens = len(task.input_ids) + len(task.draft_ids) + task.max_new_tokens
        # One block more than the tokens fill: a shared one may have to be copied.
        num_blocks = -(-num_tokens // BLOCK_SIZE) + 1
        if num_blocks > self._model.cache.num_blocks:
            limit = (self._model.cache.num_blocks - 1) * BLOCK_SIZE
            raise InvalidRequestError(
                f"the request needs up to {num_tokens} tokens of KV cache; the limit is {limit}"
            )
        stats = TaskStats(arrival_ns=task.arrival_ns, num_draft_tokens=len(task.draft_ids))
        self._waiting.append(_Running(task, receive, stats, num_blocks))

    def cancel(self, request_id: str) -> None:
        """Ends every task of that id with an empty last output; unknown ids are fine."""
        for running in [*self._waiting, *self._running]:
            if running.task.request_id == request_id:
                self._finish(running, ())

    def step(self) -> None:
        """One forward pass; hands every task its new tokens."""
        self._admit()
        chunks = list(self._select())
        if not chunks:
            return
        choices = self._model.next_tokens([segment for _, segment in chunks])
        for (running, segment), chosen in zip(chunks, choices, strict=True):
            running.pending = running.pending[len(segment.tokens) :]
            running.choices += chosen.tolist()
            if not len(running.pending):
                self._advance(running)

    def fail_all(self, error: Exception) -> None:
        """Ends every task with `error`: the pass itself failed."""
        for running in [*self._waiting, *self._running]:
            self._finish(running, (), error)

    def check_integrity(self) -> None:
        """With nothing running, nothing is held."""
        assert not self._running
        assert self._num_reserved_blocks == 0
        self._model.cache.check_integrity()

    def _admit(self) -> None:
        """Starts waiting tasks while the cache can hold all that they may grow to."""
        while self._waiting and len(self._running) < self._limits.max_num_sequences:
            running = self._waiting[0]
            if self._num_reserved_blocks + running.num_blocks > self._model.cache.num_blocks:
                return
            self._waiting.popleft()
            task = running.task
            running.sequence = self._model.cache.acquire(task.input_ids)
            running.stats.num_reused_blocks = len(running.sequence.blocks)
            running.stats.first_scheduled_ns = time.monotonic_ns()
            running.pending = np.concatenate(
                (task.input_ids[running.sequence.length :], task.draft_ids)
            )
            running.num_asked = 1 + len(task.draft_ids)
            self._num_reserved_blocks += running.num_blocks
            self._running.append(running)

    def _select(self) -> Iterator[tuple[_Running, Segment]]:
        budget = self._limits.max_num_tokens
        for running in sorted(
            self._running, key=lambda r: len(r.pending) > 1 + len(r.task.draft_ids)
        ):
            if budget == 0:
                return
            segment = running.chunk(budget)
            budget -= len(segment.tokens)
            yield running, segment

    def _advance(self, running: _Running) -> None:
        """All pending tokens have run: tokens come out."""
        task, stats = running.task, running.stats
        num_drafts = len(task.draft_ids)
        verdict = verify_chain(task.draft_ids.tolist(), running.choices)
        running.choices = []
        tokens = verdict.tokens[: task.max_new_tokens - running.num_generated]
        ended = task.end_id is not None and task.end_id in tokens
        if ended:
            tokens = tokens[: tokens.index(task.end_id)]
        stats.num_accepted_tokens = min(verdict.num_accepted, len(tokens))
        running.num_generated += len(tokens)
        if num_drafts:
            assert running.sequence is not None
            num_kept = len(task.input_ids) + verdict.num_accepted
            self._model.cache.truncate(running.sequence, num_kept)
        stats.last_token_ns = time.monotonic_ns()
        stats.first_token_ns = stats.first_token_ns or stats.last_token_ns
        if ended or num_drafts or running.num_generated == task.max_new_tokens:
            self._finish(running, tokens)
        else:
            running.receive(TaskOutput(tokens))
            running.pending = np.asarray(tokens, dtype=np.int32)

    def _finish(
        self, running: _Running, tokens: tuple[int, ...], error: Exception | None = None
    ) -> None:
        if running.sequence is None:
            self._waiting.remove(running)
        else:
            self._running.remove(running)
            self._num_reserved_blocks -= running.num_blocks
            running.stats.num_new_blocks = (
                len(running.sequence.blocks) - running.stats.num_reused_blocks
            )
            if error is None:
                self._model.cache.release(running.sequence)
            else:  # Half of a failed pass may have been written.
                self._model.cache.discard(running.sequence)
        running.receive(TaskOutput(tokens, stats=running.stats, error=error))


def fit(task: Task, limits: EngineLimits, vocab_size: int) -> Task:
    """The task as the tensorrtllm backend would run it, or InvalidRequestError.

    Source: LlmRequest::validate of TensorRT-LLM 1.2: an over-long draft is refused, an output
    that would pass the end of the context is shortened.
    """
    num_input, num_drafts = len(task.input_ids), len(task.draft_ids)
    if num_input == 0:
        raise InvalidRequestError("input_ids is empty; at least 1 token is needed")
    if num_drafts > limits.max_draft_len:
        raise InvalidRequestError(
            f"draft token length {num_drafts} exceeds the engine's max_draft_len "
            f"{limits.max_draft_len}"
        )
    if num_input >= limits.max_seq_len:
        raise InvalidRequestError(
            f"the prompt has {num_input} tokens; the limit is {limits.max_seq_len - 1} "
            f"(max_seq_len {limits.max_seq_len} less one token of output)"
        )
    for name, ids in (("input_ids", task.input_ids), ("draft_input_ids", task.draft_ids)):
        outside = ids[(ids < 0) | (ids >= vocab_size)]
        if len(outside):
            raise InvalidRequestError(
                f"{name} contains token {outside[0]}; the vocabulary has {vocab_size} tokens"
            )
    num_room = limits.max_seq_len - num_input
    max_new_tokens = min(task.max_new_tokens, num_room)
    return replace(
        task, max_new_tokens=max_new_tokens, draft_ids=task.draft_ids[: max_new_tokens - 1]
    )
