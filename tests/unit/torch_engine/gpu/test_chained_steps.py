"""Tests of chained steps: they give the tokens of single steps, and leave the same cache."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.gpu.chained_steps import MAX_STEPS
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.scheduling.pace import Pace
from specdec.torch_engine.task import Task
from tests.unit.tiny_llama import save_tiny_llama
from tests.unit.torch_engine.by_hand import CPU, Receiver, ids, prompt, run, task
from tests.unit.torch_engine.gpu.graph_path import (
    DRAFTING,
    NUCLEUS,
    NUM_CACHE_TOKENS,
    SAMPLED,
    VERIFYING,
    calls_of_a_draft,
    new_scheduler,
    step_by_step,
    tokens_of,
)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(request, tmp_path_factory):
    """Return a model on the CUDA path, without captured graphs."""
    directory = save_tiny_llama(tmp_path_factory.mktemp("tiny"))
    dtype = getattr(torch, request.param)
    return LlamaModel(directory, NUM_CACHE_TOKENS, CPU, dtype, "graph")


@pytest.fixture
def chained(model, monkeypatch):
    """Return a list that records the number of tokens of each run of chained steps."""
    noted = []
    run_chained = LlamaModel.run_chained

    def watched(self, segments, draws, num_tokens):
        noted.append(num_tokens)
        return run_chained(self, segments, draws, num_tokens)

    monkeypatch.setattr(LlamaModel, "run_chained", watched)
    return noted


def cached_tokens(scheduler):
    """Return the tokens of each sequence in the cache, sorted."""
    return sorted(each.tokens.tolist() for each in scheduler._model.cache._sequences)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("num_tokens", [2, 3, 4, 5, 8, 9, 17])
@pytest.mark.parametrize("count", [1, 3, 16])
def test_chained_steps_give_the_tokens_of_single_steps(
    model, monkeypatch, chained, params, num_tokens, count
):
    """Tokens and cache are the same for any number of steps and one to sixteen calls."""
    tasks = calls_of_a_draft(num_tokens, count, params)
    limits = replace(DRAFTING, max_num_tokens=1024, num_cache_tokens=80 * 256)
    results = []
    for expected in ([num_tokens], []):
        scheduler = new_scheduler(model, limits)
        run(scheduler, [replace(each, max_new_tokens=1) for each in tasks])  # caches the prompts
        generated = [each.tokens for each in run(scheduler, tasks)]
        results.append((generated, cached_tokens(scheduler)))
        assert chained == expected
        del chained[:]
        step_by_step(monkeypatch, model)

    assert results[0] == results[1]


def test_each_call_of_a_draft_engine_is_one_run(model, chained):
    """So it reads from the device once."""
    scheduler = new_scheduler(model, DRAFTING)
    text = prompt(12).tolist()
    for _ in range(5):
        (result,) = run(scheduler, [task(text, 4)])
        text += [*result.tokens[:2], 7]

    assert chained == [4] * 5


@pytest.mark.parametrize("position", range(5))
def test_end_token_cuts_the_chained_steps(model, monkeypatch, chained, position):
    """Steps after the end token leave no token in the answer or in the cache."""
    start = prompt(253)
    ((*generated,),) = tokens_of(model, [task(start, 6)], DRAFTING)
    ending = task(start, 6, end_id=generated[position])
    other = task(prompt(9), 6, end_id=generated[position])
    results = []
    for is_chained in (True, False):
        if not is_chained:
            step_by_step(monkeypatch, model)
        scheduler = new_scheduler(model, DRAFTING)
        found = run(scheduler, [ending, other])
        results.append(([each.tokens for each in found], cached_tokens(scheduler)))

    assert results[0] == results[1]
    assert results[0][0][0] == generated[: generated.index(generated[position])]
    assert chained


def test_chained_steps_cross_a_block_border(model, chained, monkeypatch):
    """Blocks for all tokens are reserved before the first one is known."""
    monkeypatch.setattr(Pace, "max_prompt_rows", lambda *_, limit, **__: limit)
    for length in range(250, 258):
        start = prompt(length)
        (short,) = tokens_of(model, [task(start, 12)], DRAFTING)
        (long,) = tokens_of(model, [task(start, 2 + MAX_STEPS)], DRAFTING)

        assert short == long[:12]
    # A long last chunk of the prompt is a pass of its own and gives the first token.
    assert chained == [11] * 7 + [12]


def test_calls_of_different_lengths_run_together(model, monkeypatch, chained):
    """As many steps are chained as the shortest call needs; the others then continue."""
    tasks = [task(prompt(5, seed=n), n) for n in (3, 3, 7, 12)]
    generated = tokens_of(model, tasks, DRAFTING)
    assert chained == [3, 4, 5]
    step_by_step(monkeypatch, model)

    assert generated == tokens_of(model, tasks, DRAFTING)


def test_greedy_and_sampled_calls_run_together(model, monkeypatch):
    """Each row has its own temperature and noise, and no noise of earlier steps remains."""
    tasks = [
        *calls_of_a_draft(6, 2, SAMPLED),
        *calls_of_a_draft(6, 2, GREEDY),
        *calls_of_a_draft(6, 1, replace(SAMPLED, temperature=2.0)),
    ]
    scheduler = new_scheduler(model, DRAFTING)
    generated = [each.tokens for each in run(scheduler, tasks)]
    again = [each.tokens for each in run(scheduler, calls_of_a_draft(6, 2, GREEDY))]
    step_by_step(monkeypatch, model)

    assert generated == tokens_of(model, tasks, DRAFTING)
    assert again == generated[2:4]
    assert generated[0] != generated[2]


@pytest.mark.parametrize(
    "special",
    [
        {"max_new_tokens": 2 + MAX_STEPS},
        {"params": NUCLEUS},
        {"params": SamplingParams(frequency_penalty=0.5)},
        {"params": SamplingParams(temperature=1.0, logit_bias=((3, 1.0),))},
        {"wants_log_probs": True},
        {"wants_logits": True},
    ],
    ids=lambda each: next(iter(each)),
)
def test_one_unsuitable_call_keeps_all_from_chaining(model, chained, special):
    """Long answers, truncation, penalties, logit bias, log-probabilities and logits forbid it."""
    plain = Task("r", ids(prompt(9)), 5)
    looked_at = replace(plain, request_id="s", **special)

    together = tokens_of(model, [plain, looked_at], DRAFTING)

    assert 5 not in chained
    assert together[0] == tokens_of(model, [plain], DRAFTING)[0]


def test_default_draft_engine_captures_87_graphs_of_chained_steps(model):
    """The default draft engine captures 87 graphs of chained steps when it loads.

    They come on top of the graphs of its passes (test_buckets.py).
    """
    new_scheduler(model, EngineLimits(max_seq_len=8192, max_draft_len=0, num_cache_tokens=65536))

    assert len(model._parts.chained_steps._graphs) == 87


def test_engine_that_verifies_does_not_chain_steps(model, chained):
    """An engine with a max_draft_len above 0 has graphs for verification only."""
    tokens_of(model, [task(prompt(9), 5)], VERIFYING)

    assert not chained


def test_prompt_runs_in_chunks_before_the_chained_steps(model, monkeypatch, chained):
    """A prompt that is not cached runs first, and the steps after its first token are chained."""
    tasks = [task(prompt(300), 6), task(prompt(3), 6)]
    generated = tokens_of(model, tasks, DRAFTING)
    assert chained
    step_by_step(monkeypatch, model)

    assert generated == tokens_of(model, tasks, DRAFTING)


def test_call_cancelled_between_runs_keeps_its_tokens(model):
    """The tokens so far are delivered, and nothing of the call remains in the engine."""
    scheduler = new_scheduler(model, DRAFTING)
    receivers = [Receiver(), Receiver()]
    scheduler.add([task(prompt(5), 4, request_id="a")], receivers[0])
    scheduler.add([task(prompt(6), 9, request_id="b")], receivers[1])
    scheduler.step()

    scheduler.cancel("b")

    scheduler.check_integrity()
    assert [len(each.tokens) for each in receivers] == [4, 4]
    assert all(each.is_done for each in receivers)


def test_failing_steps_leave_no_invented_tokens(model, monkeypatch):
    """Space reserved for tokens that never came is not kept as cached text."""
    scheduler = new_scheduler(model, DRAFTING)
    receiver = Receiver()
    steps = model._parts.chained_steps
    monkeypatch.setattr(type(steps), "run", lambda *_: 1 / 0)
    scheduler.add([task(prompt(5), 4)], receiver)
    with pytest.raises(ZeroDivisionError):
        scheduler.step()

    scheduler.fail_all(RuntimeError("failed"))

    assert cached_tokens(scheduler) == []
    assert receiver.outputs[-1].error is not None
    assert np.count_nonzero(scheduler._model.cache._references) == 0
