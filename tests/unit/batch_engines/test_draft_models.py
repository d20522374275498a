"""Tests of calling draft models from a process that cannot call them itself."""

import threading

import numpy as np
import pytest

from specdec.batch_engines.draft_models import DraftRelay, LocalDraftModels, RelayedDraftModels
from specdec.drafting.models.postponed import DraftCall
from specdec.errors import DraftTimeoutError, EngineFailedError, InvalidRequestError
from tests.waiting import wait_for

VOCAB_SIZE = 100
WITHIN_S = 5.0


class Model:
    """A draft model that counts on from the last token, with faults."""

    def __init__(self):
        self.asked = []
        self.error = None
        self.may_answer = threading.Event()
        self.may_answer.set()

    def ask(self, model, contexts, salts, num_tokens):
        self.asked.append((model, [each.tolist() for each in contexts], list(salts)))
        if model == "small":
            self.may_answer.wait(WITHIN_S)
        if self.error is not None:
            raise self.error
        return [tuple(range(each[-1] + 1, each[-1] + 1 + num_tokens)) for each in contexts]


@pytest.fixture
def model():
    """Return the draft model."""
    return Model()


@pytest.fixture(params=["local", "relayed"])
def models(request, model):
    """Return the draft models as drafters call them."""
    if request.param == "local":
        yield LocalDraftModels(model.ask, VOCAB_SIZE)
        return
    relay = DraftRelay(model.ask)
    yield RelayedDraftModels(relay.address, VOCAB_SIZE)
    relay.close()


def calls(*lasts, num_tokens=2):
    """Return calls whose contexts end with these tokens."""
    return [
        DraftCall("small", np.arange(last - 3, last + 1, dtype=np.int32), num_tokens, f"of {last}")
        for last in lasts
    ]


def test_each_context_gets_its_draft(models, model):
    """All contexts of a step go into one call."""
    assert models.draft("small", calls(10, 20, 30), WITHIN_S) == [(11, 12), (21, 22), (31, 32)]
    assert models.draft("small", calls(50, num_tokens=3), WITHIN_S) == [(51, 52, 53)]
    (name, contexts, salts), _ = model.asked
    assert (name, salts) == ("small", ["of 10", "of 20", "of 30"])
    assert contexts[1] == [17, 18, 19, 20]


@pytest.mark.parametrize("kind", [EngineFailedError, InvalidRequestError])
def test_failure_is_raised_and_does_not_last(models, model, kind):
    """The next call works. A model's refusal is not its failure."""
    model.error = kind("no memory")
    with pytest.raises(kind, match="no memory"):
        models.draft("small", calls(10), WITHIN_S)
    model.error = None
    assert models.draft("small", calls(10), WITHIN_S) == [(11, 12)]


def test_model_that_hangs_is_not_waited_for(models, model):
    """No further call is sent until it answers; its late answer is dropped. Others go on."""
    model.may_answer.clear()
    for _ in range(2):
        with pytest.raises(DraftTimeoutError, match="small"):
            models.draft("small", calls(10), 0.05)
    assert len(model.asked) == 1
    assert models.draft("other", calls(20), WITHIN_S) == [(21, 22)]
    model.may_answer.set()

    def answers():
        try:
            return models.draft("small", calls(40), WITHIN_S) == [(41, 42)]
        except DraftTimeoutError:
            return False

    wait_for(answers, WITHIN_S)


def test_token_outside_the_vocabulary_is_a_failure(models):
    """It would end the engine."""
    with pytest.raises(EngineFailedError, match="drafted token 100; the target's vocabulary"):
        models.draft("small", calls(98), WITHIN_S)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_end_of_the_relay_is_a_failure(model):
    """So drafting goes on with copies."""

    def end(*_):
        raise SystemExit

    before = set(threading.enumerate())
    relay = DraftRelay(end)
    models = RelayedDraftModels(relay.address, VOCAB_SIZE)
    relay.close()
    with pytest.raises((EngineFailedError, DraftTimeoutError)):
        models.draft("small", calls(10), 0.5)
    assert not model.asked
    # An exception that a thread raises later would count for another test.
    wait_for(lambda: set(threading.enumerate()) <= before, WITHIN_S)
