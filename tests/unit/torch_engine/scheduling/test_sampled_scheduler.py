"""Sampled tokens do not depend on drafts, on other requests or on how calls split a text."""

from dataclasses import replace

import numpy as np
import pytest

from specdec.acceptance.sampling import SamplingParams
from specdec.errors import InvalidRequestError, SpecdecError
from specdec.torch_engine import sampler
from specdec.torch_engine.sampler import draw_token
from specdec.torch_engine.task import Task
from tests.unit.tiny_llama import VOCAB
from tests.unit.torch_engine.by_hand import ids, new_scheduler, prompt, run, run_single

PARAMS = {
    "plain": SamplingParams(temperature=1.0, seed=3),
    "nucleus": SamplingParams(temperature=0.7, top_p=0.9, seed=4),
    "penalties": SamplingParams(
        temperature=0.9, repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.2, seed=5
    ),
    "greedy penalties": SamplingParams(repetition_penalty=1.3, frequency_penalty=0.1),
    "bans": SamplingParams(temperature=1.0, min_tokens=6, bad_words=((5,), (9, 10)), seed=6),
    "biased": SamplingParams(temperature=1.0, logit_bias=((5, 3.0), (9, -100.0)), seed=7),
    "greedy bias": SamplingParams(logit_bias=((5, 1.0), (9, -100.0))),
}
NUM_TOKENS = 24


def whole(params, start=None, end_id=None):
    """Return a task that generates all tokens in one call."""
    start = prompt(9) if start is None else start
    return Task("r", ids(start), NUM_TOKENS, params=params, num_prompt_tokens=9, end_id=end_id)


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
@pytest.mark.parametrize("num_drafts", [1, 4, 8])
def test_rounds_give_the_tokens_of_one_call(model, params, num_drafts):
    """With partly wrong drafts, the tokens and log-probabilities are the same."""
    once = run_single(model, replace(whole(params), wants_log_probs=True))
    expected = once.tokens
    assert len(expected) > 6
    generated, log_probs, scheduler = [], [], new_scheduler(model)
    noise = np.random.default_rng(num_drafts)
    while len(generated) < len(expected):
        known = expected[len(generated) : len(generated) + num_drafts]
        draft = [token if noise.random() < 0.7 else int(noise.integers(VOCAB)) for token in known]
        task = replace(
            whole(params, [*prompt(9), *generated]),
            draft_ids=ids(draft),
            max_new_tokens=len(draft) + 1,
            wants_log_probs=True,
        )
        (receiver,) = run(scheduler, [task])
        generated += receiver.tokens
        log_probs += [value for output in receiver.outputs for value in output.log_probs]

    assert generated[: len(expected)] == expected
    assert log_probs[: len(expected)] == [
        value for output in once.outputs for value in output.log_probs
    ]


def test_end_token_waits_for_min_tokens(model):
    """An end token that would come first is not drawn before `min_tokens` others."""
    params = SamplingParams(temperature=1.0, seed=8)
    first = run_single(model, whole(params)).tokens[0]

    assert run_single(model, whole(params, end_id=first)).tokens == []
    late = run_single(model, whole(replace(params, min_tokens=6), end_id=first)).tokens
    assert len(late) >= 6
    assert first not in late


def test_other_requests_in_the_batch_change_nothing(model):
    """Tasks of every kind in one batch, greedy ones too, give the tokens that they give alone."""
    tasks = [replace(whole(params), request_id=name) for name, params in PARAMS.items()]
    tasks.append(replace(whole(SamplingParams()), request_id="greedy", wants_log_probs=True))

    together = run(new_scheduler(model), tasks)

    for task, receiver in zip(tasks, together, strict=True):
        assert receiver.tokens == run_single(model, task).tokens


def test_seed_decides_the_text(model):
    """The same seed gives the same text, another seed another text."""
    first, again, other = (
        run_single(model, whole(SamplingParams(temperature=1.0, seed=seed))).tokens
        for seed in (1, 1, 2)
    )

    assert first == again != other


def test_log_probabilities_come_with_their_tokens(model):
    """Every output has one for each token, or none if they are not asked for."""
    receiver = run_single(model, replace(whole(PARAMS["plain"]), wants_log_probs=True))

    assert all(len(output.log_probs) == len(output.tokens) for output in receiver.outputs)
    assert all(value <= 0.0 for output in receiver.outputs for value in output.log_probs)
    assert not any(output.log_probs for output in run_single(model, whole(PARAMS["plain"])).outputs)


def test_nothing_is_drawn_after_a_rejected_draft_token(model, monkeypatch):
    """A round whose second draft token is wrong costs two draws, however long the draft is."""
    params = PARAMS["plain"]
    generated = run_single(model, whole(params)).tokens
    drafts = [generated[0], (generated[1] + 1) % VOCAB, *generated[2:6]]
    drawn = []

    def counting(logits, draw):
        drawn.append(draw.position)
        return draw_token(logits, draw)

    monkeypatch.setattr(sampler, "draw_token", counting)
    task = replace(whole(params), draft_ids=ids(drafts), max_new_tokens=7)

    assert run_single(model, task).tokens == generated[:2]
    assert drawn == [9, 10]


@pytest.mark.parametrize("verification", ["exact", "rejection", "block", "typical"])
def test_row_that_cannot_be_drawn_ends_only_its_own_request(model, verification):
    """Penalties that overflow end one task; others in the pass give the tokens they give alone."""
    # The engine accepts such penalties; the orchestrator refuses them.
    poison = replace(
        whole(SamplingParams(temperature=1.0, top_p=0.9, repetition_penalty=1e-44, seed=1)),
        request_id="poison",
        verification=verification,
    )
    drafting = replace(poison, request_id="drafting", draft_ids=ids([1, 2]), max_new_tokens=3)
    witnesses = [
        replace(whole(params), request_id=name, verification=verification)
        for name, params in PARAMS.items()
    ]

    received = run(new_scheduler(model), [poison, *witnesses, drafting])

    for bad in (received[0], received[-1]):
        assert isinstance(bad.outputs[-1].error, SpecdecError)
        assert not bad.tokens
    for witness, receiver in zip(witnesses, received[1:-1], strict=True):
        assert receiver.tokens == run_single(model, witness).tokens


def test_receiver_that_raises_ends_only_its_own_request(model):
    """The error of one task's receiver does not reach other tasks."""
    scheduler, generated = new_scheduler(model), []

    def broken(output):
        if output.error is None:
            raise ValueError("on purpose")

    witness = replace(whole(PARAMS["plain"]), request_id="witness")
    scheduler.add([replace(whole(PARAMS["nucleus"]), request_id="broken")], broken)
    scheduler.add([witness], lambda output: generated.extend(output.tokens))
    while scheduler.has_work:
        scheduler.step()

    assert generated == run_single(model, witness).tokens
    scheduler.check_integrity()


def test_request_that_bans_every_token_gets_an_error(model):
    """No token is left to draw, which is the client's error."""
    banned = tuple((token,) for token in range(VOCAB))
    for temperature in (0.0, 1.0):
        params = SamplingParams(temperature=temperature, bad_words=banned)
        (receiver,) = run(new_scheduler(model), [whole(params)])
        assert isinstance(receiver.outputs[-1].error, InvalidRequestError)
