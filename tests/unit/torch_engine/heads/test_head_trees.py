"""Tests of heads that draft trees: the likeliest nodes, one tree a round, and a clean cache."""

from __future__ import annotations

import heapq
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdec.acceptance.sampling import SamplingParams
from specdec.acceptance.trees import ROOT
from specdec.torch_engine.heads.growing import NUM_BRANCHES, GrowingTree
from specdec.torch_engine.heads.interface import HeadProposal, Reading
from specdec.torch_engine.layers.kv_cache import CachedSequence
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.scheduling.scheduler import Scheduler
from specdec.torch_engine.task import Task, TaskOutput
from tests.unit.tiny_heads import (
    CPU,
    LIMITS,
    Reference,
    make_task,
    prompt_of,
    run,
)

SAMPLED = SamplingParams(temperature=1.0, seed=7)


def new_scheduler(target: Path, head: Path, num_cache_tokens: int = 16384) -> Scheduler:
    """Return a scheduler of a target with a head, with an empty cache."""
    limits = replace(LIMITS, num_cache_tokens=num_cache_tokens)
    return Scheduler(LlamaModel(target, num_cache_tokens, CPU, drafting_head_dir=head), limits)


def texts_of(tokens: tuple[int, ...], parents: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Return for each node the tokens on its path, the node's own included."""
    texts: list[tuple[int, ...]] = []
    for token, parent in zip(tokens, parents or range(-1, len(tokens) - 1), strict=True):
        texts.append((*(texts[parent] if parent >= 0 else ()), token))
    return set(texts)


def likeliest(
    reference: Reference, context: list[int], next_token: int, num: int, max_depth: int
) -> set[tuple[int, ...]]:
    """Return the `num` likeliest texts of at most `max_depth` tokens after the token `next_token`.

    The search may stop early, because a longer text is never likelier than its beginning.
    """
    found: set[tuple[int, ...]] = set()
    waiting: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    while len(found) <= num:
        cost, text = heapq.heappop(waiting)
        found.add(text)
        if len(text) < max_depth:
            for token, log_prob in enumerate(
                reference.distribution(context, next_token, text).tolist()
            ):
                heapq.heappush(waiting, (cost - log_prob, (*text, token)))
    return found - {()}


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_tree_is_the_likeliest(kind: str, target: Path, heads: dict[str, Path]) -> None:
    """With at most NUM_BRANCHES nodes, the tree is the likeliest one by the trained module."""
    reference = Reference(target, heads[kind])
    model = LlamaModel(target, 8192, CPU, torch.float32, "torch", drafting_head_dir=heads[kind])
    scheduler = Scheduler(model, LIMITS)
    num_deep = 0
    for seed, length in enumerate((5, 40, 254, 300)):
        context = prompt_of(seed, length)
        task = make_task(context, num_next=NUM_BRANCHES, next_depth=3)
        output = run(scheduler, task)[0]
        texts = texts_of(output.next_drafts, output.next_parents)
        assert texts == likeliest(reference, context, output.tokens[-1], NUM_BRANCHES, 3)
        num_deep += max(map(len, texts)) > 1
    assert num_deep > 2


@given(st.integers(1, 16), st.integers(1, 6), st.integers(0, 2**32))
def test_tree_is_valid_and_within_its_limits(num_nodes: int, max_depth: int, seed: int) -> None:
    """Nodes come depth by depth, parents first. All paths differ, and none has the end token."""
    random, end_id = np.random.default_rng(seed), 3
    sequence = CachedSequence(np.zeros(1, dtype=np.int32))
    task = Task("r", np.int32([1]), 1, end_id=end_id)
    tree = GrowingTree(
        Reading(task, sequence, 0, torch.zeros(1), None, np.int32([1, 2]), num_nodes, max_depth)
    )
    while nodes := tree.deepen():
        assert len(nodes) <= NUM_BRANCHES
        for node in nodes:
            distribution = np.log(random.dirichlet(np.full(12, 0.2)) + 1e-9)
            order = np.argsort(-distribution)[:NUM_BRANCHES].tolist()
            tree.add(node, [(token, float(distribution[token])) for token in order])

    tokens, parents = tree.proposal()
    parents = parents or tuple(range(-1, len(tokens) - 1))
    depths: list[int] = []
    for node, parent in enumerate(parents):
        assert ROOT <= parent < node
        depths.append(1 + (depths[parent] if parent >= 0 else 0))
    assert len(tokens) == len(texts_of(tokens, parents)) <= num_nodes
    assert depths == sorted(depths)
    assert max(depths) <= max_depth
    assert end_id not in tokens


def text_of(scheduler: Scheduler, task: Task) -> list[int]:
    """Return the tokens that a task generates when it runs by itself."""
    answers: list[TaskOutput] = []
    scheduler.add([task], answers.append)
    while scheduler.has_work:
        scheduler.step()
    return [token for answer in answers for token in answer.tokens]


def round_of(
    scheduler: Scheduler, context: list[int], tree: HeadProposal, params: SamplingParams
) -> TaskOutput:
    """Verify a tree in one round; return its output, with the next tree."""
    task = make_task(context, tree.tokens, 8, tree.parents, next_depth=4, params=params)
    return run(scheduler, task)[0]


def test_head_reads_along_with_a_tree(target: Path, heads: dict[str, Path]) -> None:
    """The head reads the accepted path though no draft is asked for, or the answer has ended."""
    scheduler = new_scheduler(target, heads["eagle3"])
    context = prompt_of(2, 40)
    output = text_of(scheduler, Task("p", np.int32(context), 4))
    for fields in ({"num_next": 0}, {"num_next": 8, "next_depth": 3, "end_id": output[2]}):
        run(scheduler, make_task(context, num_next=0))
        tree = make_task(context, [output[0], output[1], 5, 6], parents=(-1, 0, -1, 0), **fields)
        answer = run(scheduler, tree)[0]

        assert answer.tokens == tuple(output[: len(answer.tokens)])
        assert answer.next_drafts == ()
        kept = max(scheduler._model.cache._sequences, key=lambda each: each.last_used)
        assert kept.num_read == kept.length == len(context) + 2


@pytest.mark.parametrize("params", [SamplingParams(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_a_round_brings_the_next_tree(
    kind: str, params: SamplingParams, target: Path, heads: dict[str, Path]
) -> None:
    """The tree after accepted tokens is the one that a fresh engine drafts for the same context.

    Nothing else stays in the cache.
    """
    scheduler, fresh = (new_scheduler(target, heads[kind]) for _ in range(2))
    # Blocks end at 32 positions, so context and draft cross the end of a block.
    context = prompt_of(11, 27)
    length = len(context)
    text = text_of(fresh, Task("p", np.int32(context), 24, params=params))
    tree, num_accepted = HeadProposal(), 0
    while len(context) - length < 16:
        output = round_of(scheduler, context, tree, params)
        context += output.tokens
        number = len(context) - length
        num_accepted += len(output.tokens) - 1
        assert context[length:] == text[:number]
        (kept,) = scheduler._model.cache._sequences  # neither paths nor lanes are left
        assert kept.length == kept.num_read == len(context) - 1, "it is not all read"

        alone = run(
            new_scheduler(target, heads[kind]),
            make_task(context[:-1], (), 8, next_depth=4, params=params),
        )[0]
        assert alone.tokens == (text[number - 1],)
        assert (output.next_drafts, output.next_parents) == (alone.next_drafts, alone.next_parents)
        # Add the target's own text as one path, so that tokens are accepted.
        tokens, parents = list(output.next_drafts[:5]), list(output.next_parents[:5])
        right = text[number : number + 3]
        parents += [-1, len(tokens), len(tokens) + 1][: len(right)]
        tree = HeadProposal((*tokens, *right), tuple(parents))
    assert num_accepted


def test_draft_does_not_depend_on_other_requests(target: Path, heads: dict[str, Path]) -> None:
    """Trees and chains at block edges are the same in one batch as in a pass of their own."""
    tasks = [
        make_task(prompt_of(length, length), num_next=8, next_depth=depth)
        for length in (5, 31, 32, 33, 255, 256, 300)
        for depth in (None, 4)
    ]
    scheduler = new_scheduler(target, heads["eagle3"])
    together = run(scheduler, *tasks)
    for task, output in zip(tasks, together, strict=True):
        alone = run(new_scheduler(target, heads["eagle3"]), task)[0]
        assert (output.next_drafts, output.next_parents) == (alone.next_drafts, alone.next_parents)


def test_first_token_of_a_sampled_chain_is_the_trees_first_node(
    target: Path, heads: dict[str, Path]
) -> None:
    """Chain and tree share the noise, so the tree's likeliest node is the chain's token."""
    scheduler = new_scheduler(target, heads["eagle3"])
    firsts = set()
    for seed in range(12):
        params = SamplingParams(temperature=1.0, top_p=0.95, seed=seed)
        context = prompt_of(3, 20)
        chain, tree = (
            run(scheduler, make_task(context, num_next=8, next_depth=depth, params=params))[0]
            for depth in (None, 4)
        )
        assert tree.next_drafts[0] == chain.next_drafts[0]
        firsts.add(tree.next_drafts[0])
    assert len(firsts) > 3


def test_full_cache_makes_a_narrower_tree(target: Path, heads: dict[str, Path]) -> None:
    """With few free blocks fewer nodes get children; the tree has 8 nodes all the same."""
    task = make_task(prompt_of(1, 300), num_next=8, next_depth=4)
    trees = []
    for num_tokens in (3 * 256, 16384):  # two blocks hold the context, one is free
        model = LlamaModel(
            target, num_tokens, CPU, torch.float32, "torch", drafting_head_dir=heads["eagle3"]
        )
        output = run(Scheduler(model, replace(LIMITS, num_cache_tokens=num_tokens)), task)[0]
        trees.append(texts_of(output.next_drafts, output.next_parents))

    assert trees[0] != trees[1]
    assert len(trees[0]) == len(trees[1]) == 8
    assert max(trees[0] & trees[1], key=len)
