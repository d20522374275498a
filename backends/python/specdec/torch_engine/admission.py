"""Who may start: tasks wait until the cache has room for all that they may grow to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

import numpy as np

from specdec.errors import InvalidRequestError
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.kv_cache import KVCache
from specdec.torch_engine.running import NUM_ROUND_TOKENS, RunningTask, tokens_needed
from specdec.torch_engine.task import Receiver, Task, TaskStats

GROUP_SHARE = 4
"""A group of tasks that start together may hold this fraction of the cache, or be one task."""


class Admission:
    """Groups that wait, in their order, and the places and blocks that those inside hold."""

    def __init__(self, cache: KVCache, limits: EngineLimits) -> None:
        self._cache = cache
        self._limits = limits
        self._waiting: deque[list[RunningTask]] = deque()
        self._num_inside = 0
        self._num_reserved_blocks = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def waiting(self) -> Iterator[RunningTask]:
        """Every task that has not begun."""
        return chain.from_iterable(self._waiting)

    def num_together(self, task: Task) -> int:
        """How many tasks like this one may run side by side; 0 for one that is too large.

        All of them wait until there is room for each, so they get a share of the cache.
        """
        num_blocks, needed = self._cache.num_blocks, self._blocks_needed(task)
        if needed > num_blocks:
            return 0
        return min(max(1, num_blocks // GROUP_SHARE // needed), self._limits.max_num_sequences)

    def ticket(self, task: Task, receive: Receiver) -> RunningTask:
        """The task with what it needs. Raises InvalidRequestError for one that is too large."""
        if not self.num_together(task):
            limit = (self._cache.num_blocks - 1) * self._cache.block_size
            raise InvalidRequestError(
                f"the request needs up to {tokens_needed(task)} tokens of KV cache; the limit is "
                f"{limit}"
            )
        stats = TaskStats(arrival_ns=task.arrival_ns, num_draft_tokens=len(task.draft_ids))
        text = np.concatenate(
            (task.input_ids, task.draft_ids, np.zeros(task.max_new_tokens, dtype=np.int32))
        )
        return RunningTask(task, receive, stats, self._blocks_needed(task), text)

    def wait(self, group: list[RunningTask]) -> None:
        """Lets tasks wait that start together."""
        place = len(self._waiting)
        must_wait = bool(place) and not self._has_room(self._waiting[0])
        if must_wait and self._is_round(group[0].task):  # Before answers that have not begun.
            group[0].is_round = True
            place = sum(waiting[0].is_round for waiting in self._waiting)
        self._waiting.insert(place, group)

    def enter(self) -> Iterator[RunningTask]:
        """The tasks that there is room for now."""
        while self._waiting and self._has_room(self._waiting[0]):
            for running in self._waiting.popleft():
                self._num_inside += 1
                self._num_reserved_blocks += running.num_blocks
                yield running

    def leave(self, running: RunningTask) -> None:
        """Frees what an entered task held."""
        self._num_inside -= 1
        self._num_reserved_blocks -= running.num_blocks

    def give_up(self, running: RunningTask) -> None:
        """Forgets a task that waits."""
        group = next(group for group in self._waiting if running in group)
        group.remove(running)
        if not group:
            self._waiting.remove(group)

    def check_integrity(self) -> None:
        """With nothing inside, nothing is held."""
        assert self._num_inside == 0
        assert self._num_reserved_blocks == 0

    def _has_room(self, group: list[RunningTask]) -> bool:
        num_blocks = self._num_reserved_blocks + sum(running.num_blocks for running in group)
        return (
            self._num_inside + len(group) <= self._limits.max_num_sequences
            and num_blocks <= self._cache.num_blocks
        )

    def _blocks_needed(self, task: Task) -> int:
        """One more than its tokens fill: a shared one may have to be copied."""
        return self._cache.blocks_for(tokens_needed(task)) + 1

    def _is_round(self, task: Task) -> bool:
        """The next round of an answer: its context is known but for what the last one said."""
        num_new = len(task.input_ids) - self._cache.num_cached(task.input_ids, salt=task.cache_salt)
        return num_new <= NUM_ROUND_TOKENS
