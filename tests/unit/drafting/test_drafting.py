"""Tests of the drafter that asks a draft model, and of the one that takes the first proposal."""

import numpy as np
import pytest

from specdec.drafting.combining.first import FirstProposal
from specdec.drafting.models.engine import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    DraftHealth,
    EngineDrafter,
)
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
    """A clock that the test moves by hand; the time is in seconds."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


VOCAB_SIZE = 100


class FakeDraftEngine:
    """A draft engine that answers with `tokens`, or raises `error`."""

    def __init__(self, tokens=(4, 5), error=None):
        self.tokens, self.error = tokens, error
        self.asked = []

    def draft(self, _context, num_tokens):
        self.asked.append(num_tokens)
        if self.error:
            raise self.error
        return Draft(self.tokens[:num_tokens])


def engine_drafter(engine, health=None, failures=None):
    """Return an EngineDrafter of 4 tokens, which appends its failures to a list."""
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
    """The number of draft tokens obeys both the loop's limit and the drafter's own."""
    engine = FakeDraftEngine(tokens=(4, 5, 6, 7, 8))

    proposal = engine_drafter(engine).propose(CONTEXT, most)

    assert engine.asked == [min(most, 4)]
    assert proposal == Proposal((4, 5, 6, 7)[:most], "draft", 2)


def test_tokens_beyond_the_number_asked_for_are_cut():
    """An engine that returns too many tokens cannot push the answer over its limit."""

    class Talkative(FakeDraftEngine):
        def draft(self, _context, num_tokens):
            return Draft(tuple(range(num_tokens + 3)))

    assert engine_drafter(Talkative()).propose(CONTEXT, 2).tokens == (0, 1)


@pytest.mark.parametrize("foreign", [-1, VOCAB_SIZE])
def test_token_outside_the_targets_vocabulary_is_a_failure(foreign):
    """A foreign token counts as the draft engine's failure, and the target never sees it."""
    failures = []
    engine = FakeDraftEngine(tokens=(4, foreign))

    proposal = engine_drafter(engine, failures=failures).propose(CONTEXT, 4)

    assert proposal == NO_PROPOSAL
    [(name, error)] = failures
    assert name == "draft"
    assert str(VOCAB_SIZE) in str(error)


def test_empty_draft_is_no_failure():
    """An engine that expects the answer to end returns no token: no proposal, and no failure."""
    failures = []

    assert engine_drafter(FakeDraftEngine(()), failures=failures).propose(CONTEXT, 4) == NO_PROPOSAL
    assert failures == []


@pytest.mark.parametrize(
    "error",
    [EngineFailedError("gone"), DraftTimeoutError("slow"), ValueError("shape"), OSError("pipe")],
)
def test_failure_is_reported_and_never_raised(error):
    """Whatever the engine raises, it counts as a failure and the request goes on."""
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
    assert health.begin() is not None


def test_pause_of_a_failing_engine_doubles_up_to_its_limit():
    """All requests share the pause, which doubles with each failure in a row."""
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
    """Calls that were under way when the engine failed do not lengthen the pause."""
    clock = Clock()
    health = DraftHealth(clock)

    calls = [health.begin() for _ in range(8)]
    for begun_s in calls:
        clock.now_s += 0.01
        health.failed(begun_s)

    clock.now_s += FIRST_PAUSE_S
    assert health.begin() is not None


@pytest.mark.parametrize("end", ["succeeded", "failed", "ended"])
def test_call_from_before_a_failure_changes_no_pause(end):
    """A call that was under way when the engine failed neither ends nor lengthens the pause."""
    clock = Clock()
    health = DraftHealth(clock)
    early_s, late_s = health.begin(), health.begin()
    clock.now_s += 0.01
    health.failed(late_s)

    getattr(health, end)(early_s)

    assert health.begin() is None
    clock.now_s += FIRST_PAUSE_S
    assert health.begin() is not None
    getattr(health, end)(early_s)
    assert health.begin() is None  # The engine is still being tried.


@pytest.mark.parametrize("end", ["succeeded", "failed", "ended"])
def test_after_a_pause_one_call_tries_the_engine(end):
    """Others wait for its end: a hung engine keeps a thread of Triton's for each call."""
    clock = Clock()
    health = DraftHealth(clock)
    health.failed(health.begin())
    clock.now_s += FIRST_PAUSE_S

    tried_s = health.begin()
    assert tried_s is not None
    assert health.begin() is None
    getattr(health, end)(tried_s)

    assert (health.begin() is None) == (end == "failed")
    clock.now_s += 2 * FIRST_PAUSE_S
    assert (health.begin() is None) == (end == "ended")  # That one is being tried.


def test_refused_request_does_not_pause_the_drafts_of_others():
    """The refusal is counted as a failure, but the engine works and other requests may use it."""
    failures, health = [], DraftHealth(Clock())
    engine = FakeDraftEngine(error=InvalidRequestError("too long"))

    drafter = engine_drafter(engine, health, failures)
    assert [drafter.propose(CONTEXT, 4) for _ in range(3)] == [NO_PROPOSAL] * 3
    assert len(failures) == len(engine.asked) == 1
    assert health.begin() is not None


def test_recovered_engine_is_used_at_once():
    """A success ends the row of failures: the next failure makes the shortest pause again."""
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
    assert health.begin() is not None


class FixedDrafter:
    """A drafter that always proposes the same tokens."""

    def __init__(self, *tokens, name="lookup", source=1):
        self._proposal = Proposal(tokens, name, source) if tokens else NO_PROPOSAL
        self.num_asked = 0

    def propose(self, _context, _max_tokens):
        self.num_asked += 1
        return self._proposal

    def observe(self, confirmed):
        """Do nothing: this drafter does not learn."""


def test_first_proposal_is_taken():
    """Drafters are asked in order, and those after the first with a proposal are not asked."""
    engine = FixedDrafter(9, name="draft", source=2)

    proposal = FirstProposal([FixedDrafter(), FixedDrafter(5), engine]).propose(CONTEXT, 4)

    assert proposal == Proposal((5,), "lookup", 1)
    assert engine.num_asked == 0
    assert FirstProposal([FixedDrafter()]).propose(CONTEXT, 4) == NO_PROPOSAL
