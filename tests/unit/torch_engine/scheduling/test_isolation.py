"""Tests that a failing request ends without harm to the others in its pass."""

import queue
from dataclasses import replace

import numpy as np
import pytest

from specdec.acceptance.sampling import GREEDY, SamplingParams
from specdec.errors import EngineFailedError, InvalidRequestError
from specdec.torch_engine import sampler
from specdec.torch_engine.config import EngineLimits
from specdec.torch_engine.engine import EngineSettings, TorchEngine
from specdec.torch_engine.gpu.chained_steps import MAX_STEPS
from specdec.torch_engine.model import LlamaModel
from specdec.torch_engine.sampler import draw_token
from specdec.torch_engine.scheduling import scheduler
from specdec.torch_engine.scheduling.tree import add_tree
from specdec.torch_engine.task import Task
from tests.unit.tiny_llama import VOCAB, save_tiny_llama
from tests.unit.torch_engine.by_hand import (
    CPU,
    NUM_CACHE_TOKENS,
    Receiver,
    ids,
    new_scheduler,
    prompt,
    run,
    run_single,
    task,
)
from tests.unit.torch_engine.gpu import graph_path

POISON = prompt(11, seed=5)
"""Prompt of the request that fails."""
POISON_SEED = 666
SAMPLED = SamplingParams(temperature=1.0, seed=3)
WITNESSES = {
    "greedy": Task("greedy", prompt(9), 12),
    "sampled": Task("sampled", prompt(10), 12, params=SAMPLED),
    "nucleus": Task("nucleus", prompt(7), 12, params=replace(SAMPLED, top_p=0.9)),
    "drafting": Task(
        "drafting", prompt(8), 4, ids([1, 2, 3]), params=SAMPLED, verification="rejection"
    ),
}
FAILING = {
    "greedy": GREEDY,
    "sampled": replace(SAMPLED, seed=POISON_SEED),
    "nucleus": replace(SAMPLED, seed=POISON_SEED, top_p=0.9),
    "penalty": SamplingParams(repetition_penalty=1.2),
}


@pytest.fixture(scope="module", params=["auto", "torch", "graph"])
def any_model(request, tmp_path_factory):
    """Return a tiny model, once with each kind of kernels."""
    directory = save_tiny_llama(tmp_path_factory.mktemp("tiny"))
    return LlamaModel(directory, NUM_CACHE_TOKENS, CPU, kernels=request.param)


def is_poison(sequence):
    """Say whether a sequence is the failing request's, by its beginning."""
    return sequence.tokens[: len(POISON)].tolist() == POISON.tolist()


def break_model(monkeypatch, model):
    """Make the model compute NaN for the failing request, in its output and in its cache blocks."""
    run_model = model.run

    def with_nan(segments):
        hidden = run_model(segments).clone()
        start = 0
        for segment in segments:
            end = start + segment.num_logits
            if is_poison(segment.sequence):
                hidden[start:end] = float("nan")
                model.cache.storage[:, :, segment.sequence.blocks] = float("nan")
            start = end
        # A pass of a single row returns the row twice.
        hidden[start:] = hidden[:1]
        return hidden

    monkeypatch.setattr(model, "run", with_nan)


def fail_draws(monkeypatch):
    """Make every draw with the failing request's seed raise an unexpected error."""

    def failing(logits, draw):
        if draw.params.seed == POISON_SEED:
            raise IndexError("on purpose")
        return draw_token(logits, draw)

    monkeypatch.setattr(sampler, "draw_token", failing)


def expect_only_poison_fails(model, failing, kind=EngineFailedError):
    """Run the failing task with the witnesses; check the witnesses, and return its error."""
    witnesses = list(WITNESSES.values())
    expected = [run_single(model, each).tokens for each in witnesses]
    engine = new_scheduler(model)

    failed, *others = run(engine, [failing, *witnesses])

    assert [each.tokens for each in others] == expected
    assert not failed.tokens
    assert isinstance(failed.outputs[-1].error, kind)
    # No NaN is left in the cache blocks, which later requests use again.
    assert [each.tokens for each in run(engine, witnesses)] == expected
    return failed.outputs[-1].error


@pytest.mark.parametrize("params", FAILING.values(), ids=FAILING)
def test_row_that_is_not_finite_ends_its_own_request(any_model, monkeypatch, params):
    """The NaN reaches neither other rows nor, through reused blocks, later requests."""
    break_model(monkeypatch, any_model)

    error = expect_only_poison_fails(any_model, Task("poison", POISON, 8, params=params))

    assert "not finite" in str(error)


@pytest.mark.parametrize("verification", ["exact", "rejection", "block", "typical"])
def test_draft_on_rows_that_are_not_finite_ends_its_own_request(model, monkeypatch, verification):
    """In every verification mode the request ends, and no token is drawn from such rows."""
    break_model(monkeypatch, model)
    failing = Task(
        "poison",
        POISON,
        4,
        ids([1, 2, 3]),
        params=FAILING["nucleus"],
        verification=verification,
    )

    assert "not finite" in str(expect_only_poison_fails(model, failing))


def test_draw_that_raises_ends_its_own_request(model, monkeypatch):
    """The client gets an unexpected error by name, as a failure of the engine."""
    fail_draws(monkeypatch)

    error = expect_only_poison_fails(model, Task("poison", POISON, 8, params=FAILING["sampled"]))

    assert "IndexError: on purpose" in str(error)


def test_verification_that_raises_ends_its_own_request(model, monkeypatch):
    """An error in a verification rule is handled like one in a draw."""
    verify = scheduler.verify

    def failing(task, choices):
        if task.request_id == "poison":
            raise ZeroDivisionError("on purpose")
        return verify(task, choices)

    monkeypatch.setattr(scheduler, "verify", failing)

    error = expect_only_poison_fails(model, Task("poison", POISON, 4, ids([1, 2, 3])))

    assert "ZeroDivisionError: on purpose" in str(error)


@pytest.mark.parametrize("verification", ["rejection", "block"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_draft_logits_without_distribution_are_refused(model, verification, value):
    """The client sent these values, so the error is an invalid request and names the row."""
    logits = np.zeros((3, VOCAB), dtype=np.float32)
    logits[1] = value
    failing = Task(
        "poison",
        POISON,
        4,
        ids([1, 2, 3]),
        params=FAILING["sampled"],
        verification=verification,
        draft_logits=logits,
    )

    error = expect_only_poison_fails(model, failing, InvalidRequestError)

    assert "draft_logits[1]" in str(error)


@pytest.mark.parametrize("verification", ["exact", "rejection"])
def test_paths_of_a_tree_fail_together(model, monkeypatch, verification):
    """A tree whose draws raise gets a single error, and other requests get their own tokens."""
    witness = WITNESSES["sampled"]
    expected = run_single(model, witness).tokens
    tree = Task(
        "poison",
        POISON,
        4,
        ids([1, 2, 3]),
        draft_parents=(-1, 0, -1),
        params=FAILING["sampled"],
        verification=verification,
    )
    engine = new_scheduler(model, num_cache_tokens=64 * 256)
    run(engine, [Task("cached", POISON, 1)])  # only a cached context is forked into paths
    fail_draws(monkeypatch)
    failed, beside = Receiver(), Receiver()
    add_tree(engine, tree, failed)
    engine.add([witness], beside)
    while engine.has_work:
        engine.step()

    (output,) = failed.outputs
    assert isinstance(output.error, EngineFailedError)
    assert beside.tokens == expected
    engine.check_integrity()


class BrokenReceiver:
    """A receiver that raises at every output, also at errors."""

    def __init__(self):
        self.errors = []

    def __call__(self, output):
        self.errors.append(output.error)
        raise ValueError("on purpose")


@pytest.mark.parametrize("max_new_tokens", [1, 12])
def test_receiver_that_always_raises_ends_its_own_request(model, max_new_tokens):
    """A receiver that raises at its first or last output gets an error; others notice nothing."""
    broken, beside = BrokenReceiver(), Receiver()
    witness = WITNESSES["sampled"]
    engine = new_scheduler(model)
    engine.add([task(POISON, max_new_tokens)], broken)
    engine.add([witness], beside)
    while engine.has_work:
        engine.step()

    assert isinstance(broken.errors[1], EngineFailedError)
    assert beside.tokens == run_single(model, witness).tokens
    engine.check_integrity()


def test_receiver_that_raises_in_chained_steps_ends_its_own_request(tmp_path):
    """The tokens of chained steps are handed over task by task, so other tasks get theirs."""
    model = LlamaModel(save_tiny_llama(tmp_path), graph_path.NUM_CACHE_TOKENS, CPU, kernels="graph")
    limits = graph_path.DRAFTING
    witness = task(prompt(9), MAX_STEPS)
    (expected,) = graph_path.tokens_of(model, [witness], limits)
    engine = graph_path.new_scheduler(model, limits)
    broken, beside = BrokenReceiver(), Receiver()
    engine.add([task(POISON, MAX_STEPS)], broken)
    engine.add([witness], beside)
    while engine.has_work:
        engine.step()

    assert beside.tokens == expected
    assert broken.errors
    engine.check_integrity()


def test_engine_outlives_receivers_that_always_raise(tmp_path):
    """Receivers may raise on refusal, in a pass and when cancelled; the next request is served."""
    limits = EngineLimits(max_seq_len=512, max_num_tokens=64, num_cache_tokens=8 * 256)
    engine = TorchEngine(EngineSettings(save_tiny_llama(tmp_path), limits, device="cpu"))
    try:
        engine.submit(task([VOCAB]), BrokenReceiver())
        engine.submit(task(POISON), BrokenReceiver())
        engine.submit(task(POISON, 400, request_id="late"), BrokenReceiver())
        engine.cancel("late")
        outputs = queue.SimpleQueue()
        engine.submit(task(prompt(9), 5), outputs.put)
        tokens = [token for _ in range(5) for token in outputs.get(timeout=60).tokens]
        assert len(tokens) == 5
    finally:
        engine.close()


def test_bad_words_outside_the_vocabulary_are_refused(model):
    """They are refused early, because the engine would look them up in the middle of a pass."""
    for token in (-1, VOCAB):
        params = SamplingParams(bad_words=((1, 2), (3, token)))
        with pytest.raises(InvalidRequestError, match=f"token {token}; .* {VOCAB} tokens"):
            new_scheduler(model).check(Task("r", POISON, 5, params=params))


@pytest.mark.parametrize("end_id", [-1, VOCAB])
def test_end_token_outside_the_vocabulary_never_ends(model, end_id):
    """Nothing ends the answer early, and min_tokens then bans no other token."""
    plain = Task("r", POISON, 8, params=SAMPLED)
    held = replace(plain, end_id=end_id, params=replace(SAMPLED, min_tokens=8))

    assert run_single(model, held).tokens == run_single(model, plain).tokens
