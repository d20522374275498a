"""Admission of tasks: each waits until the KV cache has room for its largest possible size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

import numpy as np

from specdec.errors import InvalidRequestError
from specdec.health.occupancy import Occupancy
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.scheduling.running import RunningTask, tokens_needed
from specdec.torch_engine.task import Receiver, Task, TaskStats

GROUP_SHARE = 4
"""Divisor of the cache: tasks that start together may reserve 1 / GROUP_SHARE of its blocks. A
single task may reserve more."""


class Admission:
    """The queue of waiting tasks, and the sequences and cache blocks reserved for admitted ones.

    A group is a list of tasks that start together: a single task, or the paths of a tree.
    """

    def __init__(self, cache: KVCache, limits: EngineLimits) -> None:
        self._cache = cache
        self._limits = limits
        self._waiting: deque[list[RunningTask]] = deque()
        self._num_inside = 0
        self._num_reserved_blocks = 0
        self.occupancy = Occupancy()
        """The occupancy after the last admission."""

    @property
    def has_waiting(self) -> bool:
        """Whether tasks wait to be admitted."""
        return bool(self._waiting)

    @property
    def waiting(self) -> Iterator[RunningTask]:
        """Every task that has not been admitted, in queue order."""
        return chain.from_iterable(self._waiting)

    def num_together(self, task: Task) -> int:
        """Return how many tasks like this one may run side by side; 0 if one alone is too large.

        A group waits until all of it has room, so it may take only a share of the cache.
        """
        num_blocks, needed = self._cache.num_blocks, self._blocks_needed(task)
        if needed > num_blocks:
            return 0
        return min(max(1, num_blocks // GROUP_SHARE // needed), self._limits.max_num_sequences)

    def ticket(self, task: Task, receive: Receiver) -> RunningTask:
        """Return the task with its buffers and block reservation, not yet in the queue.

        Raises InvalidRequestError if the task could never fit into the cache.
        """
        if not self.num_together(task):
            limit = (self._cache.num_blocks - 1) * self._cache.block_size
            raise InvalidRequestError(
                f"the request needs up to {tokens_needed(task)} tokens of KV cache; the limit is "
                f"{limit}"
            )
        stats = TaskStats(arrival_ns=task.arrival_ns, num_draft_tokens=len(task.draft_ids))
        tokens = np.concatenate(
            (task.input_ids, task.draft_ids, np.zeros(task.max_new_tokens, dtype=np.int32))
        )
        return RunningTask(task, receive, stats, self._blocks_needed(task), tokens)

    def wait(self, group: list[RunningTask]) -> None:
        """Queue a group of tasks that start together.

        If not all waiting tasks have room, a call that continues an answer overtakes calls that
        begin one. It never overtakes another call that continues an answer.
        """
        index = len(self._waiting)
        everything = [running for waiting in self._waiting for running in waiting]
        if not self._has_room([*everything, *group]) and group[0].task.continues_answer:
            while index and not self._waiting[index - 1][0].task.continues_answer:
                index -= 1
        self._waiting.insert(index, group)

    def enter(self) -> list[list[RunningTask]]:
        """Admit groups in queue order while there is room, and return them."""
        admitted = []
        while self._waiting and self._has_room(self._waiting[0]):
            group = self._waiting.popleft()
            for running in group:
                running.is_admitted = True
                self._num_inside += 1
                self._num_reserved_blocks += running.num_blocks
            admitted.append(group)
        num_waiting = sum(not group[0].task.continues_answer for group in self._waiting)
        usage = self._num_reserved_blocks / self._cache.num_blocks
        self.occupancy = Occupancy(num_waiting, usage)
        return admitted

    def leave(self, running: RunningTask) -> None:
        """Give back the reservations of an admitted task that has ended."""
        self._num_inside -= 1
        self._num_reserved_blocks -= running.num_blocks

    def give_up(self, running: RunningTask) -> None:
        """Remove a waiting task from the queue."""
        group = next(group for group in self._waiting if running in group)
        group.remove(running)
        if not group:
            self._waiting.remove(group)

    def check_integrity(self) -> None:
        """Assert that nothing is reserved; call it while no task is admitted."""
        assert self._num_inside == 0
        assert self._num_reserved_blocks == 0

    def _has_room(self, group: list[RunningTask]) -> bool:
        num_blocks = self._num_reserved_blocks + sum(running.num_blocks for running in group)
        return (
            self._num_inside + len(group) <= self._limits.max_num_sequences
            and num_blocks <= self._cache.num_blocks
        )

    def _blocks_needed(self, task: Task) -> int:
        """Return the blocks for all tokens of the task, and one for the copy of a shared block."""
        return self._cache.blocks_for(tokens_needed(task)) + 1
