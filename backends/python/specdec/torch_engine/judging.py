"""How much of a task's draft stands, once its rows have run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from specdec.acceptance.chance import Law, SeededChance
from specdec.acceptance.exact import Verdict, verify_chain
from specdec.acceptance.rules import RULES
from specdec.acceptance.trees import ROOT, verify_tree, verify_tree_by_rejection
from specdec.errors import InvalidRequestError
from specdec.torch_engine.sampler import Choice, law_of
from specdec.torch_engine.task import Task


def judge(task: Task, choices: Sequence[Choice]) -> Verdict:
    """The verdict on a chain, by the rule that the task asks for."""
    draft = task.draft_ids.tolist()
    if not task.is_judged:
        return verify_chain(draft, [choice.token for choice in choices])
    return RULES[task.verification](
        draft, _draft_laws(task), [_law(choice) for choice in choices], _chance(task)
    )


class TreeJudge:
    """Waits until all paths of a tree have run, and judges its nodes together."""

    def __init__(self, task: Task, num_paths: int) -> None:
        """`task`: with the whole tree; `num_paths`: how many paths will come."""
        self._task = task
        self._num_waiting = num_paths
        self._choices: dict[int, Choice] = {}

    def add(self, path: Sequence[int], choices: Sequence[Choice]) -> Verdict | None:
        """`choices` behind the context and behind each node of `path`; the verdict when complete.

        Nodes that no path runs through, where only some were run, are left out of the tree.
        """
        self._choices |= zip((ROOT, *path), choices, strict=True)
        self._num_waiting -= 1
        return None if self._num_waiting else self._judge()

    def _judge(self) -> Verdict:
        task = self._task
        nodes = sorted(self._choices)  # ROOT first
        number = {node: place for place, node in enumerate(nodes, start=ROOT)}
        tokens = [int(task.draft_ids[node]) for node in nodes[1:]]
        parents = [number[task.draft_parents[node]] for node in nodes[1:]]
        choices = [self._choices[node] for node in nodes]
        if not task.is_judged:
            return verify_tree(tokens, parents, [choice.token for choice in choices])
        laws = _draft_laws(task)
        return verify_tree_by_rejection(
            tokens,
            parents,
            None if laws is None else [laws[node] for node in nodes[1:]],
            [_law(choice) for choice in choices],
            _chance(task),
        )


def shared_with(verdict: Verdict, path: Sequence[int]) -> Verdict:
    """What of a tree's verdict holds for a path: its tokens while they agree, and one more."""
    num_shared = 0
    while (
        num_shared < min(verdict.num_accepted, len(path))
        and path[num_shared] == verdict.tokens[num_shared]
    ):
        num_shared += 1
    return Verdict(verdict.tokens[: num_shared + 1], num_shared)


def _draft_laws(task: Task) -> list[Law] | None:
    if task.draft_logits is None:
        return None
    laws = [law_of(torch.from_numpy(row)) for row in task.draft_logits[: len(task.draft_ids)]]
    for place, law in enumerate(laws):
        if math.isnan(law[0]):  # A softmax with one NaN is NaN throughout.
            raise InvalidRequestError(
                f"draft_logits[{place}] is no distribution: it has NaN or +inf, or no finite logit"
            )
    return laws


def _law(choice: Choice) -> Law:
    assert choice.logits is not None
    return law_of(choice.logits)


def _chance(task: Task) -> SeededChance:
    return SeededChance(task.params.seed, len(task.input_ids))
