"""A draft engine that fails harms nobody; of several drafters the first offer counts."""

import numpy as np
import pytest

from specdec.drafting.engine import FIRST_PAUSE_S, LONGEST_PAUSE_S, DraftHealth, EngineDrafter
from specdec.drafting.first import FirstOffer
from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.engines.protocol import Draft
from specdec.errors import (
    DraftTimeoutError,
    EngineFailedError,
    InvalidRequestError,
    RequestCancelledError,
)

CONTEXT = np.asarray([1, 2, 3], dtype=np.int32)


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


VOCAB_SIZE = 100


class FakeDraftEngine:
    """Answers with `tokens`, or raises `error`."""

    def __init__(self, tokens=(4, 5), error=None):
        self.tokens, self.error = tokens, error
        self.asked = []

    def draft(self, _context, num_tokens):
        self.asked.append(num_tokens)
        if self.error:
            raise self.error
        return Draft(self.tokens[:num_tokens])


def engine_drafter(engine, health=None, failures=None):
    """Return an EngineDrafter of 4 tokens that appends its failures to a list."""
    failures = [] if failures is None else failures
    return EngineDrafter(
        name="draft",
        source=2,
        num_tokens=4,
        vocab_size=VOCAB_SIZE,
        engine=engine,
        health=health or DraftHealth(Clock()),
        report_failure=lambda name, error: failures.append((name, error)),
    )


@pytest.mark.parametrize("most", [1, 3, 9])
def test_engine_is_asked_for_no_more_than_can_be_used(most):
    """The loop's limit and the drafter's number both hold."""
    engine = FakeDraftEngine(tokens=(4, 5, 6, 7, 8))

    proposal = engine_drafter(engine).propose(CONTEXT, most)

    assert engine.asked == [min(most, 4)]
    assert proposal == Proposal((4, 5, 6, 7)[:most], "draft", 2)


def test_more_than_was_asked_for_is_cut():
    """An engine that says too much must not push the answer over its limit."""

    class Talkative(FakeDraftEngine):
        def draft(self, _context, num_tokens):
            return Draft(tuple(range(num_tokens + 3)))

    assert engine_drafter(Talkative()).propose(CONTEXT, 2).tokens == (0, 1)


@pytest.mark.parametrize("foreign", [-1, VOCAB_SIZE])
def test_token_that_the_target_does_not_know_is_a_failure(foreign):
    """A draft of another vocabulary is counted as failing; the target never sees its tokens."""
    failures = []
    engine = FakeDraftEngine(tokens=(4, foreign))

    proposal = engine_drafter(engine, failures=failures).propose(CONTEXT, 4)

    assert proposal == NO_PROPOSAL
    [(name, error)] = failures
    assert name == "draft"
    assert str(VOCAB_SIZE) in str(error)


def test_engine_that_sees_the_end_offers_nothing():
    """No guess is no failure."""
    failures = []

    assert engine_drafter(FakeDraftEngine(()), failures=failures).propose(CONTEXT, 4) == NO_PROPOSAL
    assert failures == []


@pytest.mark.parametrize(
    "error",
    [EngineFailedError("gone"), DraftTimeoutError("slow"), ValueError("shape"), OSError("pipe")],
)
def test_failure_is_reported_and_never_raised(error):
    """Whatever the engine raises, the request goes on without a draft and the failure counts."""
    failures = []

    proposal = engine_drafter(FakeDraftEngine(error=error), failures=failures).propose(CONTEXT, 4)

    assert proposal == NO_PROPOSAL
    assert failures == [("draft", error)]


def test_cancelled_request_is_no_failure_of_the_draft():
    """A call that ended because its client left says nothing about the engine."""
    failures, health = [], DraftHealth(Clock())
    engine = FakeDraftEngine(error=RequestCancelledError("gone"))

    assert engine_drafter(engine, health, failures).propose(CONTEXT, 4) == NO_PROPOSAL
    assert failures == []
    assert health.usable()


def test_failing_engine_is_left_alone_for_longer_and_longer():
    """The pause doubles with each failure in a row up to its limit, for all requests together."""
    clock, failures = Clock(), []
    health = DraftHealth(clock)
    engine = FakeDraftEngine(error=EngineFailedError("gone"))
    drafters = [engine_drafter(engine, health, failures) for _ in range(2)]
    pauses_s = [FIRST_PAUSE_S * 2**n for n in range(8)]

    for number, pause_s in enumerate(min(pause_s, LONGEST_PAUSE_S) for pause_s in pauses_s):
        drafters[number % 2].propose(CONTEXT, 4)
        assert len(failures) == number + 1
        clock.now_s += pause_s - 0.01
        assert [each.propose(CONTEXT, 4) for each in drafters] == [NO_PROPOSAL] * 2
        assert len(engine.asked) == number + 1
        clock.now_s += 0.01


def test_calls_that_fail_together_make_one_pause():
    """Those that were under way when the engine failed do not lengthen it."""
    clock = Clock()
    health = DraftHealth(clock)

    for _ in range(8):
        health.failed()

    clock.now_s += FIRST_PAUSE_S
    assert health.usable()


def test_refused_request_does_not_pause_the_drafts_of_others():
    """It is counted; the engine is well."""
    failures, health = [], DraftHealth(Clock())
    engine = FakeDraftEngine(error=InvalidRequestError("too long"))

    assert engine_drafter(engine, health, failures).propose(CONTEXT, 4) == NO_PROPOSAL
    assert len(failures) == 1
    assert health.usable()


def test_recovered_engine_is_used_at_once():
    """A success ends the row of failures: the next pause is the first one again."""
    clock = Clock()
    health = DraftHealth(clock)
    engine = FakeDraftEngine(error=EngineFailedError("gone"))
    drafter = engine_drafter(engine, health)
    for _ in range(3):
        drafter.propose(CONTEXT, 4)
        clock.now_s += LONGEST_PAUSE_S
    engine.error = None

    assert drafter.propose(CONTEXT, 4).tokens == (4, 5)
    assert drafter.propose(CONTEXT, 4).tokens == (4, 5)
    engine.error = EngineFailedError("again")
    drafter.propose(CONTEXT, 4)
    clock.now_s += FIRST_PAUSE_S
    assert health.usable()


class FixedDrafter:
    """Always offers the same."""

    def __init__(self, *tokens, name="lookup", source=1):
        self._proposal = Proposal(tokens, name, source) if tokens else NO_PROPOSAL
        self.num_asked = 0

    def propose(self, _context, _max_tokens):
        self.num_asked += 1
        return self._proposal

    def observe(self, confirmed):
        """Learn nothing."""


def test_first_offer_is_taken():
    """In order; who comes behind it is not asked."""
    engine = FixedDrafter(9, name="draft", source=2)

    proposal = FirstOffer([FixedDrafter(), FixedDrafter(5), engine]).propose(CONTEXT, 4)

    assert proposal == Proposal((5,), "lookup", 1)
    assert engine.num_asked == 0
    assert FirstOffer([FixedDrafter()]).propose(CONTEXT, 4) == NO_PROPOSAL
