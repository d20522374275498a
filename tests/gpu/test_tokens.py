"""Tokens on CUDA: alone as among others, in one leap as step by step, with no wait in between."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from specdec.acceptance.noise import gumbel
from specdec.acceptance.sampling import GREEDY, Draw
from specdec.torch_engine.gpu.device_noise import DeviceNoise, keys_of
from specdec.torch_engine.gpu.step_graph import StepGraph, new_pool
from specdec.torch_engine.model import Segment
from tests.unit.by_hand import prompt, run, task
from tests.unit.graph_path import (
    DRAFTING,
    SAMPLED,
    VERIFYING,
    alone,
    calls_of_a_draft,
    mixed_tasks,
    new_scheduler,
    step_by_step,
    tokens_of,
)

pytestmark = pytest.mark.gpu


@contextmanager
def no_waiting():
    """Raise where PyTorch waits for the device."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_alone_and_among_fifteen_others(model):
    """Prompts, verification, sampling: sixteen at once say what each says alone."""
    assert tokens_of(model, mixed_tasks()) == alone(model, mixed_tasks())


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("count", [1, 3, 16])
def test_leap_says_what_steps_say(model, monkeypatch, params, count):
    """Calls of a draft engine: chained graphs give the tokens of single passes."""
    tasks = calls_of_a_draft(8, count, params)
    leapt = tokens_of(model, tasks, DRAFTING)
    step_by_step(monkeypatch, model)

    assert leapt == tokens_of(model, tasks, DRAFTING)


def test_float32_says_what_the_cpu_says(model, cpu_model):
    """Greedy tokens of another device; in bf16 near ties may fall otherwise."""
    if model.cache.storage.dtype != torch.float32:
        pytest.skip("float32 only: bf16 rounds otherwise on each device")
    tasks = [task(prompt(length), 12) for length in (3, 100, 250, 600)]

    assert tokens_of(model, tasks) == tokens_of(cpu_model, tasks)


def test_long_context_over_block_borders(model):
    """Graphs of growing contexts follow each other: as one verified draft says it."""
    start = prompt(250)
    (said,) = tokens_of(model, [task(start, 280)])
    (verified,) = tokens_of(model, [task([*start, *said[:262]], 17, said[262:278])])

    assert verified == said[262:279]


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@torch.inference_mode()
def test_nothing_waits_inside_a_round(model, params):
    """A verification pass and its draws; a draft's leap but for its last read."""
    scheduler = new_scheduler(model, DRAFTING)
    tasks = calls_of_a_draft(5, 3, params)
    run(scheduler, tasks)
    sequences = [model.cache.acquire(each.input_ids) for each in tasks]
    # Draws at the places that each call would draw at.
    draws = [new_draw(each) for each in tasks]
    segments = [
        Segment(sequence, each.input_ids[sequence.length :], 1)
        for sequence, each in zip(sequences, tasks, strict=True)
    ]
    leaper = model._parts.leaper
    with no_waiting():
        first = model.sampler.draw(model.run(segments), draws)
        for sequence in sequences:
            model.cache.extend(sequence, np.zeros(4, dtype=np.int32))
        behind = leaper.run(first, sequences, draws, 4)

    again = tokens_of(model, tasks, DRAFTING)
    assert torch.cat((first[:, None], behind), dim=1).tolist() == again


def new_draw(of):
    """Return the draw of a task's first token."""
    return Draw(of.params, of.input_ids, of.num_prompt_tokens)


def test_waiting_is_noticed():
    """The check above can fail."""
    with pytest.raises(RuntimeError, match="synchroniz"), no_waiting():
        torch.ones(1, device="cuda").item()


def test_verification_pass_is_replayed(model, monkeypatch):
    """Decoding and verifying run graphs; only prompts do not."""
    scheduler = new_scheduler(model, VERIFYING)
    run(scheduler, [task(prompt(30), 1)])
    monkeypatch.setattr(model._decoder.layers, "forward", lambda *_: pytest.fail("no graph"))

    run(scheduler, [task(prompt(30), 5, prompt(4))])


def test_noise_has_the_words_of_the_cpu():
    """The same integers; the logarithms of a device may differ in the last bits."""
    places = [(2**64 - 1, 8191), (0, 0), (7, 9)]
    noise = DeviceNoise(5000, torch.device("cuda"), new_pool(torch.device("cuda")))
    host = DeviceNoise(5000, torch.device("cpu"), None)
    keys = keys_of(places)
    out = torch.empty(len(places), 5000, device="cuda")

    noise.fill(out, keys)

    assert torch.equal(noise._words(keys.cuda()).cpu(), host._words(keys))
    expected = torch.stack([gumbel(seed, position, 5000) for seed, position in places])
    assert torch.allclose(out.cpu(), expected, rtol=1e-6, atol=1e-6)


def test_graph_reads_what_its_buffers_hold_now():
    """A replay takes new inputs from the same addresses."""
    x, y = torch.zeros(4, device="cuda"), torch.zeros(4, device="cuda")
    graph = StepGraph(lambda: y.copy_(x * 2), new_pool(torch.device("cuda")))
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [2 * value] * 4
