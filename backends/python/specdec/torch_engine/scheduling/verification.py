"""The verification of a task's draft, a chain or a tree, after its rows have run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from specdec.acceptance.chance import Distribution, SeededChance
from specdec.acceptance.exact import Verdict, verify_chain
from specdec.acceptance.rules import RULES
from specdec.acceptance.trees import ROOT, verify_tree, verify_tree_by_rejection
from specdec.errors import InvalidRequestError
from specdec.torch_engine.sampler import DrawnToken, distribution_of
from specdec.torch_engine.task import Task


def verify(task: Task, drawn: Sequence[DrawnToken]) -> Verdict:
    """Verify a chain by the task's rule; return the accepted tokens and the target's own.

    `drawn` are the target's tokens after the context and after each draft token. Raises
    InvalidRequestError if the task's draft logits are no distribution.
    """
    draft = task.draft_ids.tolist()
    if not task.verifies_by_probability:
        return verify_chain(draft, [each.token for each in drawn])
    return RULES[task.verification](
        draft,
        _draft_distributions(task),
        [_distribution(each) for each in drawn],
        _chance(task),
    )


class TreeVerifier:
    """The nodes of a tree, which are verified together once all its paths have run."""

    def __init__(self, task: Task, num_paths: int) -> None:
        """Wait for `num_paths` paths of the tree; `task` holds the tree with all its nodes."""
        self._task = task
        self._num_waiting = num_paths
        self._drawn: dict[int, DrawnToken] = {}

    def add(self, path: Sequence[int], drawn: Sequence[DrawnToken]) -> Verdict | None:
        self._drawn |= zip((ROOT, *path), drawn, strict=True)
        self._num_waiting -= 1
        return None if self._num_waiting else self._verdict()

    def _verdict(self) -> Verdict:
        task = self._task
        nodes = sorted(self._drawn)  # ROOT first
        number = {node: position for position, node in enumerate(nodes, start=ROOT)}
        tokens = [int(task.draft_ids[node]) for node in nodes[1:]]
        parents = [number[task.draft_parents[node]] for node in nodes[1:]]
        drawn = [self._drawn[node] for node in nodes]
        if not task.verifies_by_probability:
            return verify_tree(tokens, parents, [each.token for each in drawn])
        distributions = _draft_distributions(task)
        return verify_tree_by_rejection(
            tokens,
            parents,
            None if distributions is None else [distributions[node] for node in nodes[1:]],
            [_distribution(each) for each in drawn],
            _chance(task),
        )


def shared_with(verdict: Verdict, path: Sequence[int]) -> Verdict:
    """Return the part of a tree's verdict that applies to a path.

    It has the accepted tokens of the path and the token after them in the verdict.
    """
    num_shared = 0
    while (
        num_shared < min(verdict.num_accepted, len(path))
        and path[num_shared] == verdict.tokens[num_shared]
    ):
        num_shared += 1
    return Verdict(verdict.tokens[: num_shared + 1], num_shared)


def _draft_distributions(task: Task) -> list[Distribution] | None:
    if task.draft_logits is None:
        return None
    distributions = [
        distribution_of(torch.from_numpy(row)) for row in task.draft_logits[: len(task.draft_ids)]
    ]
    for n, distribution in enumerate(distributions):
        if math.isnan(distribution[0]):  # One NaN makes the whole softmax NaN.
            raise InvalidRequestError(
                f"draft_logits[{n}] is no distribution: it has NaN or +inf, or no finite logit"
            )
    return distributions


def _distribution(drawn: DrawnToken) -> Distribution:
    assert drawn.logits is not None
    return distribution_of(drawn.logits)


def _chance(task: Task) -> SeededChance:
    return SeededChance(task.params.seed, len(task.input_ids))
