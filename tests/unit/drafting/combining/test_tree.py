"""Trees of draft tokens: verified in one pass, with the bits of a chain, and nothing left over."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdec.acceptance.chance import SeededChance
from specdec.acceptance.sampling import SamplingParams
from specdec.acceptance.trees import verify_tree_by_rejection
from specdec.drafting.combining.tree import merge, side_by_side
from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.errors import ConfigurationError, InvalidRequestError
from specdec.torch_engine.sampler import distribution_of
from specdec.torch_engine.scheduling.tree import add_tree, paths_of
from specdec.torch_engine.task import Task
from tests.unit.tiny_llama import VOCAB
from tests.unit.torch_engine.by_hand import (
    LIMITS,
    Receiver,
    ids,
    new_scheduler,
    prompt,
    run,
    run_single,
)

PARAMS = {"greedy": SamplingParams(), "sampled": SamplingParams(temperature=1.0, seed=5)}


@given(st.lists(st.integers(0, 100), min_size=1, max_size=10))
def test_paths_lead_from_the_root_to_all_leaves(numbers):
    """Each begins at the root, follows parents and ends in a leaf; together they have all nodes."""
    parents = [number % (node + 1) - 1 for node, number in enumerate(numbers)]

    paths = paths_of(parents)

    assert {node for path in paths for node in path} == set(range(len(parents)))
    assert len(paths) == len(set(range(len(parents))) - set(parents))
    for path in paths:
        assert [parents[node] for node in path] == [-1, *path[:-1]]


def grow(text, random):
    """Return tokens and parents of a tree with `text` as one path and up to four random nodes."""
    tokens, parents = list(text), [place - 1 for place in range(len(text))]
    for _ in range(4):
        parent = int(random.integers(-1, len(tokens)))
        siblings = [token for token, own in zip(tokens, parents, strict=True) if own == parent]
        token = int(random.integers(VOCAB))
        if token not in siblings:
            tokens.append(token)
            parents.append(parent)
    return tokens, tuple(parents)


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
@pytest.mark.parametrize("right", [0, 2, 4])
def test_rounds_with_trees_give_the_targets_tokens(model, params, right):
    """With partly right trees, tokens and log-probabilities are those of one plain call."""
    whole = Task("r", prompt(9), 20, params=params, wants_log_probs=True)
    once = run_single(model, whole)
    scheduler = new_scheduler(model, num_cache_tokens=64 * 256)
    random, generated = np.random.default_rng(right), []
    (first,) = run(scheduler, [replace(whole, max_new_tokens=1)])
    generated += first.tokens
    log_probs = list(first.outputs[-1].log_probs)
    num_accepted = 0
    while len(generated) < 12:
        tokens, parents = grow(once.tokens[len(generated) : len(generated) + right], random)
        task = replace(
            whole,
            input_ids=ids([*prompt(9), *generated]),
            draft_ids=ids(tokens),
            draft_parents=parents,
            max_new_tokens=len(tokens) + 1,
        )
        receiver = Receiver()
        add_tree(scheduler, task, receiver)
        num_steps = 0
        while scheduler.has_work:
            scheduler.step()
            num_steps += 1
        assert num_steps == 1
        generated += receiver.tokens
        log_probs += receiver.outputs[-1].log_probs
        assert receiver.stats.num_draft_tokens == len(tokens)
        assert len(receiver.tokens) == receiver.stats.num_accepted_tokens + 1
        num_accepted += receiver.stats.num_accepted_tokens
        scheduler.check_integrity()
        assert len(model.cache._sequences) == 1, "branches were left behind"

    assert generated == once.tokens[: len(generated)]
    assert (
        log_probs
        == [each for output in once.outputs for each in output.log_probs][: len(generated)]
    )
    assert num_accepted >= right


def test_uncached_context_is_computed_once(model):
    """The first round of a prompt verifies only the longest path."""
    scheduler, receiver = new_scheduler(model), Receiver()
    task = Task("r", prompt(200), 5, ids([1, 2, 3, 4]), draft_parents=(-1, 0, -1, 1))

    add_tree(scheduler, task, receiver)
    while scheduler.has_work:
        scheduler.step()

    assert receiver.is_done
    assert receiver.stats.num_draft_tokens == 3


def test_drafts_that_begin_alike_share_their_nodes():
    """A token has one node after each prefix; its source is the first drafter that proposed it."""
    proposals = [
        Proposal((5, 6, 7), "lookup", 1),
        Proposal((5, 8), "draft", 2),
        Proposal((5, 6, 7, 9), "suffix", 3),
    ]

    tree = merge(proposals, "tree", max_nodes=16)

    assert tree.tokens == (5, 6, 7, 8, 9)
    assert tree.parents == (-1, 0, 1, 0, 2)
    assert tree.sources == (1, 1, 1, 2, 3)
    assert tree.sources_of((5, 6, 7, 9)) == (1, 1, 1, 3)
    assert merge(proposals[::2], "tree", max_nodes=16).parents == ()
    assert merge(proposals, "tree", max_nodes=4).tokens == (5, 6, 7, 8)
    assert merge([], "tree", max_nodes=4) == NO_PROPOSAL


def test_branches_verified_by_probabilities_stay_separate():
    """Equal tokens keep a node for each drafter; a copied token has probability 1."""
    logits = np.asarray([[0.0, 1.0, 2.0, 3.0]] * 2, dtype=np.float32)
    proposals = [Proposal((3, 1), "lookup", 1), Proposal((3, 2), "draft", 2, logits)]

    tree = side_by_side(proposals, "tree", max_nodes=16)

    assert tree.tokens == (3, 1, 3, 2)
    assert tree.parents == (-1, 0, -1, 2)
    assert np.exp(tree.logits[:2]).tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]
    assert (tree.logits[2:] == logits).all()
    assert tree.sources_of((3, 2)) == (1, 2)
    assert tree.draft.path((3, 2)) == (0, 3)
    short = side_by_side(proposals, "tree", max_nodes=3)
    assert (short.tokens, short.parents, len(short.logits)) == ((3, 1, 3), (-1, 0, -1), 3)
    run_single = side_by_side(proposals[:1], "tree", max_nodes=16)
    assert (run_single.parents, run_single.logits) == ((), None)


def task_to_verify(tokens, parents, laws, seed=7, **fields):
    """Return a task with a tree to verify by rejection; `laws` are draft logits [nodes, vocab]."""
    params = SamplingParams(temperature=1.0, seed=seed)
    return Task(
        "r",
        prompt(9),
        20,
        ids(tokens),
        draft_parents=tuple(parents),
        draft_logits=laws,
        verification="rejection",
        params=params,
        **fields,
    )


def answer_of(model, task):
    """Verify a tree whose context is cached already; return the receiver of its output."""
    scheduler, receiver = new_scheduler(model, num_cache_tokens=64 * 256), Receiver()
    run(scheduler, [Task("r", task.input_ids, 1)])
    add_tree(scheduler, task, receiver)
    while scheduler.has_work:
        scheduler.step()
    scheduler.check_integrity()
    assert len(model.cache._sequences) == 1, "branches were left behind"
    return receiver


@pytest.mark.parametrize("seed", range(12))
def test_rejection_verifies_all_nodes_of_a_tree_together(model, seed):
    """The result is the rule's for all nodes together, and the accepted path stays cached."""
    random = np.random.default_rng(seed)
    once = run_single(
        model, Task("r", prompt(9), 4, params=SamplingParams(temperature=1.0, seed=seed))
    )
    tokens, parents = grow(once.tokens[:3], random)
    laws = random.normal(0, 2, (len(tokens), VOCAB)).astype(np.float32)
    laws[np.arange(len(tokens)), tokens] += 3
    task = task_to_verify(tokens, parents, laws, seed, wants_log_probs=True)
    texts = [()]
    for token, parent in zip(tokens, parents, strict=True):
        texts.append((*texts[parent + 1], token))

    def target_law(text):
        params = replace(task.params, seed=0)
        asked = Task("r", ids([*prompt(9), *text]), 1, params=params, wants_logits=True)
        return distribution_of(torch.from_numpy(run_single(model, asked).outputs[-1].logits[0]))

    expected = verify_tree_by_rejection(
        tokens,
        parents,
        [distribution_of(torch.from_numpy(row)) for row in laws],
        [target_law(text) for text in texts],
        SeededChance(seed, 9),
    )

    receiver = answer_of(model, task)

    assert tuple(receiver.tokens) == expected.tokens
    assert receiver.stats.num_accepted_tokens == expected.num_accepted
    assert len(receiver.outputs[-1].log_probs) == len(expected.tokens)
    cached = model.cache._sequences[0].tokens.tolist()
    assert cached == [*prompt(9).tolist(), *expected.tokens[:-1]]


def test_paths_of_a_tree_start_together_or_not_at_all(model):
    """Trees that do not fit side by side run one after another, and none waits for itself."""
    scheduler = new_scheduler(model, replace(LIMITS, max_num_sequences=3), 64 * 256)
    run(scheduler, [Task("r", prompt(9), 1)])
    receivers = [Receiver() for _ in range(4)]
    for number, receiver in enumerate(receivers):
        task = Task(str(number), prompt(9), 5, ids([1, 2, 3, 4]), draft_parents=(-1,) * 4)
        add_tree(scheduler, task, receiver)
    add_tree(scheduler, Task("x", prompt(9), 5, ids([1, 2]), draft_parents=(-1, -1)), Receiver())
    while scheduler.has_work:
        scheduler.step()
        begun = Counter(each.task.request_id for each in scheduler._running)
        assert set(begun.values()) <= {3}, "a tree is under way in part"

    assert all(receiver.is_done for receiver in receivers)
    assert [receiver.stats.num_draft_tokens for receiver in receivers] == [3] * 4
    scheduler.check_integrity()


@pytest.mark.parametrize("num_rounds", [0, 1])
def test_tree_is_cancelled_as_a_whole(model, num_rounds):
    """Whether it waits or runs, every path ends once, and nothing stays reserved."""
    limits = replace(LIMITS, max_num_tokens=5)
    scheduler, receiver = new_scheduler(model, limits, 64 * 256), Receiver()
    run(scheduler, [Task("r", prompt(9), 1)])
    task = Task("t", prompt(9), 5, ids([1, 2, 3, 4]), draft_parents=(-1, 0, -1, 2))
    add_tree(scheduler, task, receiver)
    for _ in range(num_rounds):
        scheduler.step()
    assert not receiver.is_done

    scheduler.cancel("t")

    assert receiver.is_done
    assert receiver.tokens == []
    assert not scheduler.has_work
    scheduler.check_integrity()


@pytest.mark.parametrize("verification", ["exact", "rejection"])
def test_tree_ends_where_the_answer_ends(model, verification):
    """The end token, the token limit and the end of the context take effect inside a tree."""
    params = SamplingParams(temperature=1.0, seed=3)
    generated = run_single(model, Task("r", prompt(9), 6, params=params)).tokens

    def answer(context, tokens, **fields):
        parents = (*range(-1, len(tokens) - 1), -1)
        task = Task(
            "t",
            context,
            fields.pop("max_new_tokens", len(tokens) + 2),
            ids([*tokens, (tokens[0] + 1) % VOCAB]),
            draft_parents=parents,
            params=params,
            verification=verification,
            **fields,
        )
        return answer_of(model, task)

    ended = answer(prompt(9), generated[:4], end_id=generated[2])
    limited = answer(prompt(9), generated[:4], max_new_tokens=1)
    last = answer(prompt(1023), generated[:2])

    if verification == "exact":
        assert ended.tokens == generated[:2]
        assert limited.tokens == generated[:1]
    assert generated[2] not in ended.tokens
    assert len(limited.tokens) == len(last.tokens) == 1


def test_draft_limit_counts_all_nodes(model):
    """A wide tree of short paths has as many draft tokens as a long chain."""
    task = Task("r", prompt(5), 20, ids(range(9)), draft_parents=(-1,) * 9)

    with pytest.raises(ConfigurationError, match=r"9 exceeds .* 8"):
        add_tree(new_scheduler(model), task, Receiver())


@pytest.mark.parametrize(
    ("parents", "verification", "told"),
    [
        ((-1, 1), "exact", r"draft_parents\[1\] must lie from -1 to 0; given 1"),
        ((-1, -2), "exact", "given -2"),
        ((-1,), "exact", "2 entries; given 1"),
        ((-1, -1), "block", "'block'"),
    ],
)
def test_malformed_trees_are_refused(model, parents, verification, told):
    """The error gives limit and value. Verification `block` takes no trees."""
    task = Task(
        "r",
        prompt(5),
        5,
        ids([1, 2]),
        draft_parents=parents,
        verification=verification,
        params=PARAMS["sampled"],
    )

    with pytest.raises(InvalidRequestError, match=told):
        add_tree(new_scheduler(model), task, Receiver())
