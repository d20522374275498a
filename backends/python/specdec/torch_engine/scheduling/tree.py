"""The verification of a tree, in one pass over its paths.

Every path from the root to a leaf runs as a sequence of its own, forked from the cached blocks of
the context. Unlike the usual tree mask, this computes shared beginnings more than once. In return,
a row attends to the same cache slots as in a chain, so its result is the same to the bit. With a
mask it is not, because the order of summation follows the slots.

The nodes are verified together. The path with the most accepted tokens gives the answer, and its
keys and values are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdec.acceptance.modes import EXACT, REJECTION
from specdec.acceptance.trees import ROOT
from specdec.errors import InvalidRequestError
from specdec.torch_engine.scheduling.scheduler import Scheduler
from specdec.torch_engine.scheduling.verification import TreeVerifier
from specdec.torch_engine.task import EMPTY_OUTPUT, Branch, Receiver, Task, TaskOutput


def paths_of(parents: Sequence[int]) -> list[tuple[int, ...]]:
    """Return every path from the root to a leaf as node indices, in the order of the leaves.

    Raises InvalidRequestError unless every parent comes before its child.
    """
    for node, parent in enumerate(parents):
        if not ROOT <= parent < node:
            raise InvalidRequestError(
                f"draft_parents[{node}] must lie from {ROOT} to {node - 1}; given {parent}"
            )
    leaves = set(range(len(parents))) - set(parents)
    paths = []
    for leaf in sorted(leaves):
        path, node = [], leaf
        while node != ROOT:
            path.append(node)
            node = parents[node]
        paths.append(tuple(reversed(path)))
    return paths


class _Branches:
    """The receiver of a tree's paths, which hands on one output when all paths have ended.

    This is the output with the most accepted tokens, or an error if any path failed.
    """

    def __init__(self, num_paths: int, num_draft_tokens: int, receive: Receiver) -> None:
        self._num_waiting = num_paths
        self._num_draft_tokens = num_draft_tokens
        self._receive = receive
        self._best: TaskOutput = EMPTY_OUTPUT
        self._failure: TaskOutput | None = None

    def __call__(self, output: TaskOutput) -> None:
        if output.error is not None:
            self._failure = output
        elif output.stats is not None and (
            self._best.stats is None
            or output.stats.num_accepted_tokens > self._best.stats.num_accepted_tokens
        ):
            self._best = output
        self._num_waiting -= 1
        # It falls below 0 if the receiver failed on the output. The receiver then gets the error.
        if self._num_waiting <= 0:
            if self._best.stats is not None:
                self._best.stats.num_draft_tokens = self._num_draft_tokens
            self._receive(self._failure or self._best)


def add_tree(scheduler: Scheduler, task: Task, receive: Receiver) -> None:
    """Queue the verification of a tree: a task with `draft_parents`.

    If not all paths may run side by side, the longest ones run. If the context is not cached yet,
    only the longest one runs.

    Raises InvalidRequestError if the parents form no tree, or if the task can never run. Unless the
    task is greedy, it is also raised for a verification other than `exact` and `rejection`.
    """
    parents = task.draft_parents
    if len(parents) != len(task.draft_ids):
        raise InvalidRequestError(
            f"draft_parents must have {len(task.draft_ids)} entries; given {len(parents)}"
        )
    paths = paths_of(parents)
    if task.verifies_by_probability and task.verification != REJECTION:
        raise InvalidRequestError(
            f"trees are verified by {EXACT!r} or {REJECTION!r}; given verification "
            f"{task.verification!r}"
        )
    num_paths = scheduler.num_together(scheduler.check(task))
    # Each path would compute the uncached part of the context again.
    if not scheduler.is_cached(task):
        num_paths = min(num_paths, 1)
    if len(paths) > num_paths:
        paths = sorted(paths, key=len, reverse=True)[: max(num_paths, 1)]
    verifier = TreeVerifier(task, len(paths))
    tasks = [
        replace(
            task,
            draft_ids=task.draft_ids[list(path)],
            draft_logits=None,
            max_new_tokens=min(task.max_new_tokens, len(path) + 1),
            draft_parents=(),
            branch=Branch(verifier, path, task.verifies_by_probability),
        )
        for path in paths
    ]
    branches = _Branches(len(tasks), len({node for path in paths for node in path}), receive)
    scheduler.add(tasks, branches)
