"""Tests of the CUDA decoder on a CPU: the same buffers, padding and masks, but no captured graphs.

They run in float32, where PyTorch's CPU kernels differ between shapes too little to change a token.
Equal bits between shapes are promised on CUDA only, and tested in tests/gpu.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.gpu import tiles
from specdec.torch_engine.gpu.buckets import Bucket
from specdec.torch_engine.layers.kv_cache import KVCache
from specdec.torch_engine.model import LlamaModel, Segment
from specdec.torch_engine.scheduling.scheduler import Scheduler
from specdec.torch_engine.scheduling.tree import add_tree
from specdec.torch_engine.task import Task
from tests.unit.tiny_llama import save_tiny_llama
from tests.unit.torch_engine.by_hand import CPU, Receiver, ids, prompt, run, task
from tests.unit.torch_engine.gpu.graph_path import (
    DRAFTING,
    NUM_CACHE_TOKENS,
    VERIFYING,
    mixed_tasks,
    new_scheduler,
    run_single,
    tokens_of,
)

TOLERANCE = 2e-5
"""Tolerance for hidden states of size 1, which float32 sums in another order."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return (CUDA decoder, plain decoder of PyTorch operations) with the same random weights."""
    directory = save_tiny_llama(tmp_path_factory.mktemp("tiny"))
    return [
        LlamaModel(directory, NUM_CACHE_TOKENS, CPU, torch.float32, kernels)
        for kernels in ("graph", "torch")
    ]


def hidden_of(model, segments):
    """Run the prompts, then one pass with the tokens that follow each; return its hidden states.

    `segments` holds (prompt, following tokens) for each sequence.
    """
    new_scheduler(model, VERIFYING)
    sequences = [model.cache.acquire(ids([*start, 0])) for start, _ in segments]
    for sequence, (start, _) in zip(sequences, segments, strict=True):
        if len(start):
            model.run([Segment(sequence, ids(start), 0)])
    following = [
        Segment(sequence, ids(tokens), len(tokens))
        for sequence, (_, tokens) in zip(sequences, segments, strict=True)
    ]
    return model.run(following)[: sum(len(tokens) for _, tokens in segments)]


@pytest.mark.parametrize(
    "shape",
    [
        [(10, 1)],
        [(10, 2)],
        [(0, 5)],
        [(10, 17)],
        [(10, 40)],
        [(254, 5)],
        [(255, 1), (256, 1), (257, 1)],
        [(511, 5), (3, 1), (700, 17), (20, 9), (256, 2)],
        [(5, 5)] * 16,
        [(30, 1)] * 15 + [(8, 17)],
        [(3, 100), (300, 2), (50, 1)],
    ],
    ids=str,
)
def test_hidden_states_are_those_of_the_plain_decoder(models, shape):
    """States are close in float32 for one and many sequences, bucket edges and block borders."""
    segments = [
        (prompt(before, seed=n), prompt(count, seed=50 + n))
        for n, (before, count) in enumerate(shape)
    ]

    graphs, plain = (hidden_of(model, segments) for model in models)

    assert torch.allclose(graphs, plain, atol=TOLERANCE, rtol=0)


def test_passes_without_a_prompt_replay_graphs(models, monkeypatch):
    """Passes that verify or generate replay graphs, so these tests run the same path as CUDA."""
    model, _ = models
    scheduler = new_scheduler(model, VERIFYING)
    run(scheduler, [task(prompt(30), 3)])
    replayed = []
    for bucket, graph in model._decoder._graphs.items():
        replay = graph.replay
        monkeypatch.setattr(
            graph,
            "replay",
            lambda replay=replay, bucket=bucket: (replayed.append(bucket), replay()),
        )

    run(scheduler, [task(prompt(30), 5, prompt(4))])
    run(scheduler, [task(prompt(30), 3)])

    assert replayed == [Bucket(1, 5, 1)] + [Bucket(1, 1, 1)] * 3


def test_mixed_batch_gives_the_tokens_of_the_plain_decoder(models):
    """Sixteen different requests get the same tokens in one batch as in passes of their own."""
    graphs, plain = models

    together = tokens_of(graphs, mixed_tasks())

    assert together == tokens_of(plain, mixed_tasks())
    assert together == run_single(graphs, mixed_tasks())


def test_context_grows_over_a_block_border(models):
    """From 250 to 530 tokens, the context crosses two block borders and uses three buckets."""
    graphs, plain = models
    tasks = [task(prompt(250), 280)]

    assert tokens_of(graphs, tasks) == tokens_of(plain, tasks)


def test_other_cache_than_the_prepared_one_is_served_without_graphs(models):
    """Graphs hold the addresses of one cache, so a pass over another cache runs without them."""
    graphs, plain = models
    (expected,) = run_single(plain, [task(prompt(20), 6)])
    run(new_scheduler(graphs, VERIFYING), [task(prompt(20, seed=1), 6)])
    graphs.cache = KVCache(graphs.config, NUM_CACHE_TOKENS, CPU, torch.float32)

    assert run(Scheduler(graphs, VERIFYING), [task(prompt(20), 6)])[0].tokens == expected


def test_trees_are_verified_as_by_the_plain_decoder(models):
    """The paths of a tree fork the cache and run as one rectangle."""
    parents = (-1, 0, 0, 1, -1, 4)
    start = prompt(270)
    all_tokens = []
    for model in models:
        (truth,) = run_single(model, [task(start, 4)])
        drafts = [truth[0], truth[1], 7, truth[2], 9, 11]
        scheduler = new_scheduler(model, VERIFYING)
        run(scheduler, [task(start, 1)])
        receiver = Receiver()
        add_tree(scheduler, Task("t", ids(start), 7, ids(drafts), draft_parents=parents), receiver)
        while scheduler.has_work:
            scheduler.step()
        scheduler.check_integrity()
        assert receiver.tokens == truth
        all_tokens.append(receiver.tokens)
    assert all_tokens[0] == all_tokens[1]


@given(data=st.data())
@settings(max_examples=20)
def test_any_schedule_gives_the_same_tokens(models, data):
    """Late arrivals, shared beginnings, cancelled requests and chained steps change no token."""
    graphs, plain = models
    limits = data.draw(st.sampled_from([VERIFYING, DRAFTING]))
    stems = [prompt(254), prompt(4)]
    tasks = [
        task(
            [*stems[data.draw(st.integers(0, 1))], *prompt(data.draw(st.integers(0, 9)))],
            data.draw(st.integers(1, 20)),
            data.draw(st.lists(st.integers(0, 127), max_size=limits.max_draft_len)),
            request_id=str(number),
        )
        for number in range(data.draw(st.integers(1, 5)))
    ]
    expected = run_single(plain, tasks, limits)
    scheduler = new_scheduler(graphs, limits)
    receivers = [Receiver() for _ in tasks]
    cancelled = set()
    for each, receiver in zip(tasks, receivers, strict=True):
        scheduler.add([each], receiver)
        for _ in range(data.draw(st.integers(0, 3))):
            scheduler.step()
        if data.draw(st.integers(0, 4)) == 0:
            cancelled.add(data.draw(st.sampled_from(tasks)).request_id)
            scheduler.cancel(max(cancelled))
    while scheduler.has_work:
        scheduler.step()

    scheduler.check_integrity()
    for each, receiver, tokens in zip(tasks, receivers, expected, strict=True):
        assert receiver.is_done
        assert receiver.tokens == tokens[: len(receiver.tokens)]
        assert receiver.tokens == tokens or each.request_id in cancelled


def test_products_always_have_the_same_rows(models, monkeypatch):
    """Every product has 64 rows, whatever runs, because the shape fixes the order of its sums."""
    seen = set()
    mm = torch.mm

    def watched(x, weight):
        seen.add(len(x))
        return mm(x, weight)

    monkeypatch.setattr(tiles.torch, "mm", watched)
    tokens_of(models[0], mixed_tasks())

    assert seen == {tiles.TILE}


def test_float32_product_of_bf16_weights_is_nearly_exact():
    """The head's logits keep 16 bits of the hidden states, where bf16 keeps 8."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(70, 64, generator=generator)
    weight = torch.randn(300, 64, generator=generator).to(torch.bfloat16)
    exact = hidden.double() @ weight.double().T

    error = (tiles.float32_product(hidden, weight).double() - exact).abs().max()
    rounded = hidden.to(torch.bfloat16).double() @ weight.double().T

    assert error < 1e-3
    assert (rounded - exact).abs().max() > 50 * error


def test_draft_vocabulary_gives_the_targets_ids(tmp_path):
    """A head with its own vocabulary yields the target's ids, and never a token outside it."""
    save_reduced(tmp_path)
    graphs, plain = (
        LlamaModel(tmp_path, NUM_CACHE_TOKENS, CPU, torch.float32, kernels)
        for kernels in ("graph", "torch")
    )
    tasks = mixed_tasks()

    assert tokens_of(graphs, tasks) == tokens_of(plain, tasks)


def save_reduced(directory):
    """Save a checkpoint whose head has 32 rows, for the tokens 3, 6, 9 and so on."""
    save_tiny_llama(directory, draft_vocab_size=32)
    tensors = load_file(directory / "model.safetensors")
    tensors["lm_head.weight"] = tensors["lm_head.weight"][:32].contiguous()
    tensors["d2t"] = torch.from_numpy(2 * np.arange(32) + 3)
    save_file(tensors, directory / "model.safetensors")


def test_default_limits_are_prepared_without_a_gpu(models):
    """More than 50 graphs share one input buffer; a graph has no buffer of its own."""
    model, _ = models

    model.prepare(EngineLimits(max_seq_len=2048, num_cache_tokens=NUM_CACHE_TOKENS))

    assert len(model._decoder._graphs) > 50
    assert model._decoder._inputs.numel() < 4096
