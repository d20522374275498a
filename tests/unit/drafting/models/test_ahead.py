"""Tests of drafting ahead: the tokens stay the same, and come sooner if drafts are accepted."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.acceptance.exact import verify_chain
from specdec.acceptance.noise import gumbel
from specdec.drafting.models.ahead import MAX_RUNNING, AheadDrafter
from specdec.drafting.models.engine import DraftHealth, EngineDrafter
from specdec.drafting.protocol import NO_PROPOSAL
from specdec.engines.protocol import Draft, Verification
from specdec.errors import DraftTimeoutError, EngineFailedError
from specdec.loop import Context, speculate
from tests.unit.scripted import END_ID, PROMPT, KnowingTarget, make_round

TEXT = tuple(range(100, 140))
VOCAB_SIZE = 1000
LIMIT_S = 10.0
"""Longest time in seconds for which a test waits."""


@pytest.fixture(scope="module")
def threads():
    """Return the executor on whose threads calls ahead run."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


def new_context(max_tokens):
    """Return the context of a new request."""
    return Context(np.asarray(PROMPT, dtype=np.int32), max_tokens)


class ScriptedEngine:
    """A draft engine that continues `text`, with wrong tokens at some positions of the answer.

    `behaviours` says how each call behaves, in order; all later calls are "prompt".

    - "prompt": returns at once.
    - "late": returns after 2 ms.
    - "short": returns half of the tokens.
    - "failing": raises EngineFailedError.
    - "hanging": raises DraftTimeoutError after 2 ms.
    - "foreign": returns tokens outside the vocabulary.

    Attributes:
        calls: (context, most tokens) of each call.
        num_open: number of calls that have begun and not ended.
    """

    def __init__(self, text=TEXT, wrong_positions=(), behaviours=()):
        self._text, self._wrong_positions = text, wrong_positions
        self._behaviours = list(behaviours)
        self._lock = threading.Lock()
        self.calls = []
        self.num_open = 0

    def draft(self, context, num_tokens):
        with self._lock:
            self.calls.append((tuple(context.tolist()), num_tokens))
            behaviour = self._behaviours.pop(0) if self._behaviours else "prompt"
            self.num_open += 1
        try:
            return self._answer(context, num_tokens, behaviour)
        finally:
            with self._lock:
                self.num_open -= 1

    def _answer(self, context, num_tokens, behaviour):
        if behaviour == "failing":
            raise EngineFailedError("gone")
        if behaviour in {"late", "hanging"}:
            time.sleep(0.002)
        # The engine's adapter gives up a call that takes too long.
        if behaviour == "hanging":
            raise DraftTimeoutError("slow")
        if behaviour == "foreign":
            return Draft((VOCAB_SIZE,) * num_tokens)
        start = len(context) - len(PROMPT)
        positions = range(start, start + (num_tokens // 2 if behaviour == "short" else num_tokens))
        own_tokens = [self._text[each] if each < len(self._text) else END_ID for each in positions]
        wrong = self._wrong_positions
        return Draft(
            tuple(1 if p in wrong else t for p, t in zip(positions, own_tokens, strict=True))
        )


def engine_drafter(engine, k, health=None, failures=None):
    """Return an EngineDrafter of `k` tokens; it appends its failures to `failures`."""
    failures = [] if failures is None else failures
    return EngineDrafter(
        name="draft",
        source=2,
        num_tokens=k,
        vocab_size=VOCAB_SIZE,
        engine=engine,
        health=health or DraftHealth(clock=lambda: 0.0),
        report_failure=lambda name, error: failures.append((name, error)),
    )


def ahead_drafter(threads, engine, k, *, health=None, failures=None, abort=None):
    """Return an AheadDrafter of `k` tokens that asks `engine` for all its drafts."""
    health = health or DraftHealth()
    return AheadDrafter(
        engine_drafter(engine, k, health, failures),
        engine_drafter(engine, k + 1, health, failures),
        k,
        abort or (lambda: None),
        threads,
    )


class PatientTarget(KnowingTarget):
    """A target that verifies only after all open calls of the draft engine have ended."""

    def __init__(self, text, engine):
        super().__init__(text)
        self._engine, self.waits = engine, True

    def verify(self, context, draft):
        deadline_s = time.monotonic() + LIMIT_S
        while self.waits and self._engine.num_open and time.monotonic() < deadline_s:
            time.sleep(0.0002)
        return super().verify(context, draft)


@settings(max_examples=150)
@given(st.data())
def test_output_is_the_targets_own(threads, data):
    """Drafting ahead changes no token, however the draft engine behaves.

    Its drafts may be right, wrong, short, late or outside the vocabulary, and its calls may fail.
    """
    text = tuple(data.draw(st.lists(st.integers(1, 5), max_size=24), label="text"))
    k = data.draw(st.integers(1, 5), label="k")
    max_tokens = data.draw(st.integers(1, 30), label="max_tokens")
    wrong = data.draw(st.sets(st.integers(0, 30)), label="wrong positions")
    kinds = st.sampled_from(["prompt", "late", "short", "failing", "hanging", "foreign"])
    engine = ScriptedEngine(
        text, wrong, data.draw(st.lists(kinds, max_size=30), label="behaviours")
    )
    failures = []
    always_usable = DraftHealth(clock=iter(range(0, 10**9, 1000)).__next__)
    drafter = ahead_drafter(threads, engine, k, health=always_usable, failures=failures)
    if data.draw(st.booleans(), label="short drafts"):
        drafter._meter.called(k, 0.0)

    rounds = list(speculate(new_context(max_tokens), KnowingTarget(text), drafter))

    assert tuple(token for each in rounds for token in each.tokens) == text[:max_tokens]
    assert rounds[-1].ended == (len(text) < max_tokens)
    assert all(name == "draft" for name, _ in failures)
    assert all(len(context) - len(PROMPT) + n < max_tokens for context, n in engine.calls)


class DrawingEngine:
    """An engine that can be target or draft model; it draws with the noise of (seed, position).

    `laws` [n, vocab] are logits. The last token of the text, modulo n, chooses the row.
    """

    def __init__(self, laws, seed):
        self._laws, self._seed = laws, seed

    def _next(self, text):
        law = self._laws[text[-1] % len(self._laws)]
        return int(np.argmax(law + gumbel(self._seed, len(text), len(law)).numpy()))

    def _chain(self, context, count):
        text = context.tolist()
        for _ in range(count):
            text.append(self._next(text))
        return tuple(text[len(context) :])

    def draft(self, context, num_tokens):
        return Draft(self._chain(context, num_tokens))

    def verify(self, context, draft):
        text, choices = context.tolist(), []
        for token in (*draft.tokens, None):
            choices.append(self._next(text))
            text.append(token)
        return Verification(verify_chain(draft.tokens, choices).tokens, ended=False)


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 4), st.floats(0.0, 3.0))
def test_seeded_draws_are_the_targets_own(threads, seed, k, distance):
    """Sampled with a seed, the text is the target's own, however much the draft model differs."""
    rng = np.random.default_rng(seed)
    laws = rng.normal(size=(8, 8))
    target = DrawingEngine(laws, seed)
    draft = DrawingEngine(laws + distance * rng.normal(size=laws.shape), seed)
    expected = target._chain(np.asarray(PROMPT, dtype=np.int32), 40)

    rounds = list(speculate(new_context(40), target, ahead_drafter(threads, draft, k)))

    assert tuple(token for each in rounds for token in each.tokens) == expected


def test_draft_is_ready_when_the_one_before_was_accepted(threads):
    """A draft model that is always right is only asked ahead; later rounds confirm k + 1 tokens.

    The first round is a plain step, in which both engines process the prompt.
    """
    engine = ScriptedEngine()
    target = PatientTarget(TEXT, engine)

    rounds = list(speculate(new_context(31), target, ahead_drafter(threads, engine, 4)))

    assert [len(each.tokens) for each in rounds] == [1] + [5] * 6
    lengths = [len(context) - len(PROMPT) for context, _ in engine.calls]
    assert lengths == [0, 5, 10, 15, 20, 25]
    assert [most for _, most in engine.calls] == [5, 5, 5, 5, 5, 5]


@pytest.mark.parametrize("is_short", [True, False])
def test_after_a_rejection_waits_for_short_drafts(threads, is_short):
    """After a rejection the drafter waits for the next draft if drafting takes little time.

    If it takes long, the drafter has no proposal, and the target makes a plain step meanwhile.
    """
    clock = iter([0.0, 0.0, 0.3 if is_short else 1.2, 0.0, 0.0])
    engine = ScriptedEngine()
    draft, longer = engine_drafter(engine, 4), engine_drafter(engine, 5)
    drafter = AheadDrafter(draft, longer, 4, lambda: None, threads, clock.__next__)
    context = np.asarray(PROMPT, dtype=np.int32)
    # Only the second round is measured: in the first, both engines process the prompt.
    for num_confirmed in (0, 1):
        drafter.propose(np.append(context, np.asarray(TEXT[:num_confirmed], dtype=np.int32)), 20)
        drafter._call.result()
        drafter.observe(make_round(target_s=1.0))

    proposal = drafter.propose(np.append(context, np.int32(1)), 20)

    assert len(proposal.tokens) == (4 if is_short else 0)


def test_rejection_ends_the_call_ahead(threads):
    """A call ahead that assumed a rejected draft is ended once, and its tokens are never used."""
    is_asked, released, aborted = threading.Event(), threading.Event(), []
    engine = ScriptedEngine()

    class Slow(ScriptedEngine):
        def draft(self, context, num_tokens):
            is_asked.set()
            assert released.wait(LIMIT_S)
            return super().draft(context, num_tokens)

    def abort():
        aborted.append(len(aborted))
        released.set()

    drafter = AheadDrafter(engine_drafter(engine, 3), engine_drafter(Slow(), 4), 3, abort, threads)
    drafter._meter.passed(1.0)
    drafter._meter.called(3, 0.0)
    context = np.asarray(PROMPT, dtype=np.int32)
    assert drafter.propose(context, 20).tokens == TEXT[:3]
    assert is_asked.wait(LIMIT_S)

    proposal = drafter.propose(np.append(context, np.int32(1)), 19)

    assert aborted == [0]
    assert proposal.tokens == TEXT[1:4]
    assert len(engine.calls) == 2


def test_engine_that_hangs_holds_few_threads(threads):
    """At most MAX_RUNNING calls wait for an engine that hangs, however many rounds follow."""
    release, is_asked = threading.Event(), threading.Event()
    num_begun = []

    class Hanging:
        def draft(self, _context, _num_tokens):
            num_begun.append(1)
            is_asked.set()
            release.wait(LIMIT_S)
            raise DraftTimeoutError("slow")

    failures = []
    drafter = ahead_drafter(threads, Hanging(), 3, failures=failures)
    context = np.asarray(PROMPT, dtype=np.int32)
    try:
        drafter.propose(context, 20)
        assert is_asked.wait(LIMIT_S)
        # Each of these contexts differs from the one that the call ahead assumes.
        for token in range(1, 8):
            assert drafter.propose(np.append(context[:-1], np.int32(token)), 20) == NO_PROPOSAL
            assert len(drafter._running) <= MAX_RUNNING
    finally:
        release.set()

    for call in drafter._running:
        call.result(LIMIT_S)
    assert len(num_begun) <= MAX_RUNNING
    assert {type(error) for _, error in failures} == {DraftTimeoutError}


def test_failed_call_ahead_is_reported_and_pauses_the_engine(threads):
    """A call ahead that fails counts as a failure of the draft engine, which then gets a pause."""
    failures, health = [], DraftHealth(clock=lambda: 0.0)
    engine = ScriptedEngine(behaviours=["failing"])
    drafter = ahead_drafter(threads, engine, 3, health=health, failures=failures)

    rounds = list(speculate(new_context(10), KnowingTarget(TEXT), drafter))

    assert [len(each.tokens) for each in rounds] == [1] * 10
    assert [(name, type(error)) for name, error in failures] == [("draft", EngineFailedError)]
    assert len(engine.calls) == 1
    assert health.begin() is None


def test_measures_neither_prompts_nor_ended_calls(threads):
    """Times of the first round and of calls without tokens are not used.

    The first round includes the prompt. A call without tokens may have been ended early.
    """
    engine = ScriptedEngine()
    usable = DraftHealth(clock=iter(range(0, 10**6, 1000)).__next__)
    drafter = ahead_drafter(threads, engine, 2, health=usable)
    measured = []
    drafter._meter.called = lambda *call: measured.append(call)
    drafter._meter.passed = measured.append
    context = np.asarray(PROMPT, dtype=np.int32)

    for behaviour, target_s in (("prompt", 5.0), ("failing", 0.2), ("prompt", 0.3)):
        engine._behaviours = [behaviour]
        drafter.propose(context, 9)
        drafter._call.result()
        drafter.observe(make_round(target_s=target_s))

    assert [each for each in measured if isinstance(each, float)] == [0.2, 0.3]
    assert [each[0] for each in measured if isinstance(each, tuple)] == [3]


def test_drafter_asked_for_a_single_round_drafts_at_once(threads):
    """The drafter waits for a draft if other drafters had the rounds before.

    `auto` tries a drafter that does not pay off in single rounds; a plain step would tell nothing.
    """
    drafter = ahead_drafter(threads, ScriptedEngine(), 2)
    context = np.asarray(PROMPT, dtype=np.int32)
    assert drafter.propose(context, 9) == NO_PROPOSAL
    drafter.observe(make_round())
    drafter.observe(make_round())

    proposal = drafter.propose(np.append(context, np.asarray((1, 1), dtype=np.int32)), 7)

    assert proposal.tokens == TEXT[2:4]
    drafter._call.result()
