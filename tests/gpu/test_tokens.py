"""Tokens on CUDA depend on neither batch nor chaining, and a round never waits for the device.

In chained steps, the device generates several tokens before the host reads any of them.
"""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from specdec.acceptance.noise import gumbel
from specdec.acceptance.sampling import GREEDY, Draw
from specdec.torch_engine.gpu.buckets import Bucket
from specdec.torch_engine.gpu.device_noise import DeviceNoise, keys_of
from specdec.torch_engine.gpu.step_graph import StepGraph, new_pool
from specdec.torch_engine.model import Segment
from tests.gpu.device import DEVICE, IS_CUDA
from tests.unit.torch_engine.by_hand import prompt, run, task
from tests.unit.torch_engine.gpu.graph_path import (
    DRAFTING,
    SAMPLED,
    VERIFYING,
    calls_of_a_draft,
    mixed_tasks,
    new_scheduler,
    run_single,
    step_by_step,
    tokens_of,
)

pytestmark = pytest.mark.gpu


@contextmanager
def no_waiting():
    """Make PyTorch raise if it waits for the device; do nothing in a rehearsal."""
    if not IS_CUDA:
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_sixteen_tasks_at_once_give_the_tokens_of_each_by_itself(model):
    """Prompts, verification and sampling in one batch change no task's tokens."""
    assert tokens_of(model, mixed_tasks()) == run_single(model, mixed_tasks())


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("count", [1, 3, 16])
def test_chained_steps_give_the_tokens_of_single_steps(model, monkeypatch, params, count):
    """In calls of a draft engine, chained graphs give the tokens of single passes."""
    tasks = calls_of_a_draft(8, count, params)
    chained = tokens_of(model, tasks, DRAFTING)
    step_by_step(monkeypatch, model)

    assert chained == tokens_of(model, tasks, DRAFTING)


def test_float32_gives_the_tokens_of_the_cpu(float32_model, cpu_model):
    """Greedy tokens in float32 equal the CPU's; in bf16, near ties could be decided differently."""
    tasks = [task(prompt(length), 12) for length in (3, 100, 250, 600)]

    assert tokens_of(float32_model, tasks) == tokens_of(cpu_model, tasks)


def test_long_context_over_block_borders(model):
    """Graphs for longer and longer contexts generate 280 tokens from a prompt of 250.

    One verification of 16 of them accepts all.
    """
    start = prompt(250)
    (tokens,) = tokens_of(model, [task(start, 280)])
    (verified,) = tokens_of(model, [task([*start, *tokens[:262]], 17, tokens[262:278])])

    assert verified == tokens[262:279]


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@torch.inference_mode()
def test_nothing_waits_inside_a_round(model, params):
    """The host waits for the device neither in a pass with its draws nor in 4 chained steps.

    The tokens equal those that the scheduler gives.
    """
    scheduler = new_scheduler(model, DRAFTING)
    tasks = calls_of_a_draft(5, 3, params)
    run(scheduler, tasks)
    sequences = [model.cache.acquire(each.input_ids) for each in tasks]
    # Each draw has the position of its call's first token, so that the noise is the same.
    draws = [new_draw(each) for each in tasks]
    segments = [
        Segment(sequence, each.input_ids[sequence.length :], 1)
        for sequence, each in zip(sequences, tasks, strict=True)
    ]
    steps = model._parts.chained_steps
    with no_waiting():
        first = model.sampler.draw(model.run(segments), draws)
        for sequence in sequences:
            model.cache.extend(sequence, np.zeros(4, dtype=np.int32))
        following = steps.run(first, sequences, draws, 4)

    tokens = torch.cat((first[:, None], following), dim=1).tolist()

    assert tokens == tokens_of(model, tasks, DRAFTING)


def new_draw(of):
    """Return the draw of the first token that a task generates."""
    return Draw(of.params, of.input_ids, of.num_prompt_tokens)


@pytest.mark.skipif(not IS_CUDA, reason="a CPU computes at once: nothing waits")
def test_a_wait_for_the_device_raises():
    """The context manager `no_waiting` of these tests notices a wait."""
    with pytest.raises(RuntimeError, match="synchroniz"), no_waiting():
        torch.ones(1, device="cuda").item()


def test_verification_after_a_cached_prompt_replays_a_graph(model, monkeypatch):
    """Verifying four draft tokens replays one graph: one sequence, five rows, one cache block."""
    scheduler = new_scheduler(model, VERIFYING)
    run(scheduler, [task(prompt(30), 1)])
    replayed = []
    for bucket, graph in model._decoder._graphs.items():
        replay = graph.replay

        def count(replay=replay, bucket=bucket):
            replayed.append(bucket)
            replay()

        monkeypatch.setattr(graph, "replay", count)

    run(scheduler, [task(prompt(30), 5, prompt(4))])

    assert replayed == [Bucket(1, 5, 1)]


def test_noise_has_the_integers_of_the_cpu():
    """Device and CPU give equal random words; their Gumbel noise may differ in the last bits."""
    positions = [(2**64 - 1, 8191), (0, 0), (7, 9)]
    noise = DeviceNoise(5000, DEVICE, new_pool(DEVICE))
    host = DeviceNoise(5000, torch.device("cpu"), None)
    keys = keys_of(positions)
    out = torch.empty(len(positions), 5000, device=DEVICE)

    noise.fill(out, keys)

    assert torch.equal(noise._words(keys.to(DEVICE)).cpu(), host._words(keys))
    expected = torch.stack([gumbel(seed, position, 5000) for seed, position in positions])
    assert torch.allclose(out.cpu(), expected, rtol=1e-6, atol=1e-6)


def test_graph_reads_what_its_buffers_hold_now():
    """A replay reads the values that its input buffers hold at that moment."""
    x, y = torch.zeros(4, device=DEVICE), torch.zeros(4, device=DEVICE)
    graph = StepGraph(lambda: y.copy_(x * 2), new_pool(DEVICE))
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [2 * value] * 4
