"""Drafters in an engine's batch: each request has its own, and none fails or holds up a step."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.batch_drafting.batch_drafter import BATCH, BatchDrafter
from specdec.batch_drafting.building import RequestDrafterBuilder
from specdec.batch_drafting.requests import RequestStep
from specdec.drafting.copying.suffix import Memory
from specdec.drafting.models.engine import FIRST_PAUSE_S
from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.errors import DraftTimeoutError, InvalidRequestError
from specdec.settings.drafters import DrafterSettings
from specdec.steering.choices import Choice, EstimatedDrafter
from specdec.steering.controller import Controller
from specdec.steering.load import Load
from specdec.steering.settings import ControlSettings
from tests.unit.batch_drafting.batch_engine import BatchEngine

MAX_DRAFT_LEN = 8
LOOP = tuple(range(10, 22))
"""Tokens that an answer repeats, so that copies are accepted."""


def loop_after(context, num_tokens):
    """Return the tokens that follow a context of LOOP, over and over."""
    position = LOOP.index(context[-1]) + 1
    return (LOOP * 9)[position : position + num_tokens]


class Server:
    """A batch drafter with real drafters, and the engine that asks it."""

    def __init__(self, budget_s=1.0, build=None, head="", draft_models=None, **engine):
        self.load, self.memory, self.failures = Load(), Memory(), []
        self.controller = Controller(
            ControlSettings(control_share=0.0), draw=random.Random(1).random
        )
        self.builder = RequestDrafterBuilder(
            DrafterSettings(head=head, draft_models=("draft",) if draft_models else ()),
            MAX_DRAFT_LEN,
            self.controller,
            self.load,
            self.memory,
        )
        self.drafter = BatchDrafter(
            build or self.builder.build,
            self.load,
            budget_s,
            draft_models,
            remember=self.memory.learn,
            report_failure=lambda name, error: self.failures.append((name, error)),
        )
        self.engine = BatchEngine(self.drafter, **engine)

    def settle(self):
        """Wait until the thread that drafts has done everything."""
        assert self.drafter.flush(10)


@contextmanager
def serving(**given):
    """Yield a server, whose thread ends afterwards."""
    server = Server(**given)
    try:
        yield server
    finally:
        server.drafter.close()


class Replaying:
    """A drafter that proposes what its function returns for a context."""

    def __init__(self, propose):
        self._propose = propose
        self.observed = []

    def propose(self, context, max_tokens):
        tokens = self._propose(context.tolist())[:max_tokens]
        return Proposal(tuple(tokens), "replay", 1) if tokens else NO_PROPOSAL

    def observe(self, confirmed):
        self.observed.append(confirmed)


def test_each_request_gets_the_drafter_and_length_that_it_asks_for():
    """Each of sixteen requests in one batch gets exactly the k that it asks for."""
    names = ("lookup", "suffix", "lookup+suffix", "auto")
    asked = [(name, k) for name in names for k in (0, 1, 3, 8)]
    with serving() as server:
        for number, (name, k) in enumerate(asked):
            server.engine.add(
                f"r{number}", LOOP * 2, LOOP * 4, drafter=name, num_draft_tokens=k, task="t"
            )
        server.engine.run()
        for number, (_, k) in enumerate(asked):
            ended = server.engine.ended[f"r{number}"]
            assert max(map(len, ended.drafts)) == k
            assert all(each.num_draft_tokens <= k for each in ended.rounds)
    assert not server.failures


def test_accepted_tokens_have_the_number_of_their_drafter():
    """Drafters are numbered as in `output_sources`; the target's own tokens have 0."""
    numbers = {each.name: each.source for each in DrafterSettings().ids}
    with serving() as server:
        server.engine.add("a", LOOP * 2, LOOP * 2, drafter="lookup", num_draft_tokens=3)
        server.engine.run()
    later = server.engine.ended["a"].rounds[1:-1]
    assert {each.sources for each in later} == {(numbers["lookup"],) * 3 + (0,)}
    assert {each.drafter for each in later} == {"lookup"}


def test_prediction_is_copied_from_the_first_token_on():
    """The engine generates the first token without a draft; all others come from the prediction."""
    with serving() as server:
        text = tuple(range(100, 140))
        server.engine.add("a", (1, 2, 3), text, drafter="prediction", prediction=text)
        server.engine.run()
    rounds = server.engine.ended["a"].rounds
    assert sum(each.num_accepted for each in rounds) == len(text) - len(rounds)
    assert len(rounds) <= 1 + -(-len(text) // MAX_DRAFT_LEN)


def test_suffix_copies_from_finished_requests_of_the_same_tenant_only():
    """Another tenant's answers are never proposed."""
    text = tuple(range(100, 130))
    with serving() as server:
        for tenant in ("a", "b"):
            server.engine.add(tenant, (1, 2, 3), text, drafter="none", tenant="a")
            server.engine.run()
            server.settle()
        for tenant in ("a", "b"):
            server.engine.add(tenant, (1, 2, 3), text, drafter="suffix", tenant=tenant)
        server.engine.run()
    num_accepted = {
        name: sum(each.num_accepted for each in ended.rounds)
        for name, ended in server.engine.ended.items()
    }
    assert num_accepted["b"] == 0
    assert num_accepted["a"] > len(text) // 2


def test_head_of_the_engine_is_steered():
    """The engine's own draft is cut to k, and is not needed if no request uses it."""
    with serving(head="eagle3", own_draft=lambda context: loop_after(context, 5)) as server:
        server.engine.add("a", LOOP, LOOP * 2, drafter="eagle3", num_draft_tokens=2)
        server.engine.run()
        rounds = server.engine.ended["a"].rounds
        assert {each.num_draft_tokens for each in rounds[3:-1]} == {2}
        assert {each.num_accepted for each in rounds[3:-1]} == {2}
        assert set(server.engine.num_own_draft[:-3]) == {2}
        server.engine.num_own_draft.clear()
        server.engine.add("b", LOOP, LOOP * 2, drafter="none")
        server.engine.run()
        assert set(server.engine.num_own_draft) == {None}


def test_steps_that_read_prompts_count_as_such(monkeypatch):
    """Requests that generate meanwhile report what slowed their step, and only then."""
    with serving() as server:
        monkeypatch.setattr(server.controller, "draw", lambda _: True)
        learned = []
        monkeypatch.setattr(server.controller, "learn_step", lambda step, _: learned.append(step))
        server.engine.add("a", LOOP, LOOP * 2, num_draft_tokens=0)
        for _ in range(3):
            server.engine.step()
        server.engine.add("b", LOOP, LOOP * 2, num_prompt_steps=2, num_draft_tokens=0)
        for _ in range(4):
            server.engine.step()
        server.settle()
    assert [step.num_reading for step in learned] == [0, 0, 1, 1, *[0] * 4]


def test_controller_learns_acceptance_and_step_times():
    """The controller learns by task from requests that leave everything open."""
    with serving() as server:
        for number in range(4):
            server.engine.add(f"r{number}", LOOP * 2, LOOP * 20, task="repeat")
        server.engine.run()
        server.settle()
    assert server.controller.costs.is_known
    alpha, num_samples = server.controller.acceptance.alpha("repeat", EstimatedDrafter("copy"))
    assert num_samples > 10
    assert alpha > 0.9


def test_repetitions_in_the_prompt_say_nothing_about_copies():
    """Only the answer counts; the engine reads the prompt without draft tokens."""
    with serving() as server:
        server.engine.add("a", LOOP * 10, range(100, 130), task="t")
        server.engine.run()
        server.settle()
    assert server.controller.acceptance.alpha("t", EstimatedDrafter("copy"))[0] < 0.1


def test_nothing_is_learned_from_unverified_drafts():
    """A full step of the engine takes no draft tokens; that says nothing about acceptance."""
    with serving(num_taken=lambda _: 0) as server:
        server.engine.add("a", LOOP * 2, LOOP * 4, drafter="lookup", task="t")
        server.engine.run()
        server.settle()
    assert all(each.num_draft_tokens == 0 for each in server.engine.ended["a"].rounds)
    assert server.controller.acceptance.alpha("t", EstimatedDrafter("lookup"))[1] == 0


def test_drafter_that_raises_is_dropped_and_reported():
    """Its request goes on without speculation; the others keep their drafters."""
    failing = []

    def propose(context):
        if len(context) >= 8 and not failing:
            failing.append(context)
            raise ValueError("broken")
        return loop_after(context, 3)

    with serving(build=lambda *_: Replaying(propose)) as server:
        for name in ("a", "b"):
            server.engine.add(name, LOOP[:5], loop_after(LOOP[:5], 30))
        server.engine.run()
    ended = server.engine.ended
    assert [(name, str(error)) for name, error in server.failures] == [("auto", "broken")]
    assert sorted(len(each.rounds) < 12 for each in ended.values()) == [False, True]


def test_requests_that_fail_in_one_step_cause_one_pause():
    """Else a single bad step would pause a drafter for minutes."""

    def fail_later(context):
        if len(context) > len(LOOP) + 2:
            raise ValueError("broken")
        return ()

    with serving(build=lambda *_: Replaying(fail_later)) as server:
        for number in range(12):
            server.engine.add(str(number), LOOP, LOOP * 2)
        server.engine.run()
        server.settle()
        assert len(server.failures) == 12
        assert server.drafter._failed["auto"]._pause_s == FIRST_PAUSE_S


def test_refused_drafter_is_reported_and_pauses_nothing():
    """A client's error must not take drafters from others."""
    with serving() as server:
        for name in ("unknown", "draft", "vote"):
            server.engine.add(name, LOOP, LOOP * 2, drafter=name)
        server.engine.run()
        server.settle()
    assert [name for name, _ in server.failures] == ["unknown", "draft", "vote"]
    assert not server.drafter._failed


class Models:
    """Draft models that continue LOOP; `fault` may raise an error in a call."""

    def __init__(self, fault=lambda: None):
        self.calls, self._fault = [], fault

    def draft(self, model, calls, timeout_s):
        self.calls.append((model, [each.num_tokens for each in calls]))
        assert timeout_s > 0
        self._fault()
        return [loop_after(each.context.tolist(), 9) for each in calls]


def test_draft_model_gets_one_call_a_step_for_all_its_requests():
    """Each request gets as many draft tokens as it asks for, and others do not wait for it."""
    models = Models()
    with serving(draft_models=models) as server:
        for k in (1, 3, 5):
            options = {"drafter": "draft", "num_draft_tokens": k}
            server.engine.add(str(k), LOOP, LOOP * 4, **options)
        server.engine.add("lookup", LOOP * 2, LOOP * 2, drafter="lookup")
        server.engine.run()
        found = server.engine.ended
        for k in (1, 3, 5):
            rounds = found[str(k)].rounds
            assert max(each.num_draft_tokens for each in rounds) == k
            assert {each.drafter for each in rounds} == {None, "draft"}
            assert all(each.num_accepted == each.num_draft_tokens for each in rounds)
        assert {each.drafter for each in found["lookup"].rounds} == {None, "lookup"}
        num_steps = max(len(each.rounds) for each in found.values())
        assert len(models.calls) <= num_steps
        assert models.calls[0] == ("draft", [1, 3, 5])
    assert server.failures == []


def test_copies_come_before_the_draft_model():
    """`lookup+draft` asks the model only where there is no copy."""
    models = Models()
    with serving(draft_models=models) as server:
        server.engine.add("a", range(100, 104), LOOP * 4, drafter="lookup+draft")
        server.engine.run()
        drafters = [each.drafter for each in server.engine.ended["a"].rounds]
    assert {"lookup", "draft"} <= set(drafters)
    assert len(models.calls) == drafters.count("draft")


def test_failing_draft_model_is_reported_and_left_alone_for_a_while():
    """The steps go on without drafts; copies are not concerned."""

    def fail():
        raise RuntimeError("broken")

    models = Models(fail)
    with serving(draft_models=models) as server:
        for name, drafter in (("a", "draft"), ("b", "lookup+draft")):
            server.engine.add(name, LOOP * 2, LOOP * 3, drafter=drafter)
        server.engine.run()
        assert {each.drafter for each in server.engine.ended["a"].rounds} == {None}
        assert "lookup" in {each.drafter for each in server.engine.ended["b"].rounds}
    assert len(models.calls) == 1
    assert [name for name, _ in server.failures] == ["draft"]


def test_slow_draft_model_takes_no_copies_from_others():
    """A late draft counts against the model alone, and the step keeps the copies."""

    class Slow(Models):
        def draft(self, model, calls, timeout_s):
            self.calls.append(model)
            time.sleep(timeout_s)
            raise DraftTimeoutError("late")

    models = Slow()
    with serving(draft_models=models, budget_s=0.2) as server:
        server.engine.add("a", LOOP, LOOP * 3, drafter="draft")
        server.engine.add("b", LOOP * 2, LOOP * 3, drafter="lookup")
        server.engine.run()
        assert all(each.num_draft_tokens for each in server.engine.ended["b"].rounds[1:-1])
    assert len(models.calls) == 1
    assert [name for name, _ in server.failures] == ["draft"]


def test_refused_request_takes_the_draft_model_from_no_other():
    """It is not asked for again, and the model goes on for the others."""

    class Refusing(Models):
        def draft(self, model, calls, timeout_s):
            if len(calls[0].context) > 100:
                self.calls.append("refused")
                raise InvalidRequestError("too long")
            return super().draft(model, calls, timeout_s)

    models = Refusing()
    with serving(draft_models=models) as server:
        server.engine.add("long", LOOP * 9, LOOP * 3, drafter="draft")
        server.engine.run()
        server.engine.add("short", LOOP, LOOP * 3, drafter="draft")
        server.engine.run()
        assert {each.drafter for each in server.engine.ended["long"].rounds} == {None}
        assert "draft" in {each.drafter for each in server.engine.ended["short"].rounds}
    assert models.calls.count("refused") == 1


def test_report_that_fails_does_not_fail_a_step():
    """Failures of failures stay without effect."""

    def fail(*_):
        raise ValueError("broken")

    with serving(build=fail) as server:
        server.drafter._report_failure = fail
        server.engine.add("a", LOOP, LOOP * 2)
        server.engine.run()
        server.settle()


def test_step_does_not_wait_for_a_drafter_that_hangs():
    """It goes on after twice the budget, and later steps do not wait at all."""
    hang = threading.Event()

    def propose(context):
        hang.wait(5)
        return loop_after(context, 3)

    with serving(budget_s=0.02, build=lambda *_: Replaying(propose)) as server:
        server.engine.add("a", LOOP, LOOP * 4)
        start_s = time.monotonic()
        for _ in range(10):
            server.engine.step()
        assert time.monotonic() - start_s < 0.5
        hang.set()
        assert [name for name, _ in server.failures] == [BATCH]
        assert isinstance(server.failures[0][1], DraftTimeoutError)


def test_drafter_sees_all_tokens_after_steps_that_did_not_wait():
    """A late drafter learns of all rounds in order, those in which it was not asked included."""
    drafter = Replaying(lambda context: loop_after(context, 3))
    with serving(budget_s=0.02, build=lambda *_: drafter) as server:
        blocked = threading.Event()
        server.engine.add("a", LOOP, LOOP * 3)
        server.engine.step()
        server.drafter._tasks.put(blocked.wait)
        for _ in range(5):
            server.engine.step()
        blocked.set()
        server.settle()
        server.engine.run()
        server.settle()
    seen = tuple(token for each in drafter.observed for token in each.tokens)
    assert seen == LOOP * 3


def test_short_budget_asks_all_rows_in_turn():
    """Rows for which no time was left come first in the next step."""
    asked = []

    def build(options, *_):
        def propose(_context):
            asked.append(options.task)
            time.sleep(0.004)
            return (1,)

        return Replaying(propose)

    with serving(budget_s=0.01, build=build) as server:
        for number in range(9):
            server.engine.add(str(number), LOOP, LOOP * 2, task=str(number))
        for _ in range(8):
            server.engine.step()
        server.settle()
    assert {asked.count(str(number)) > 0 for number in range(9)} == {True}
    assert not server.failures


def test_request_that_was_not_begun_gets_no_draft():
    """An engine may run requests of its own, such as a warm-up."""
    with serving() as server:
        found = server.drafter.step([RequestStep("unknown", (1, 2))])
    assert (found.proposals, found.rounds, found.num_own_draft) == ((NO_PROPOSAL,), (None,), None)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_course_of_an_engine_keeps_texts_and_leaves_nothing(data):
    """Whatever is cancelled, cut or raised, texts stay right and the load returns to zero."""
    draw = data.draw
    small = st.integers(1, 4)

    def build_failing(options, prompt, clock):
        drafter = server.builder.build(options, prompt, clock)
        if options.task == "failing":
            drafter.propose = lambda *_: 1 / 0
        return drafter

    def num_taken(size):
        return draw(st.integers(0, size))

    with serving(build=build_failing, num_taken=num_taken) as server:
        for number in range(draw(st.integers(1, 5))):
            server.engine.add(
                f"r{number}",
                LOOP[: draw(small)] * draw(small),
                draw(st.lists(st.integers(1, 3), min_size=1, max_size=40)),
                num_prompt_steps=draw(small),
                drafter=draw(st.sampled_from(["auto", "lookup", "suffix", "tree", "none"])),
                num_draft_tokens=draw(st.sampled_from([None, 0, 2, 8])),
                task=draw(st.sampled_from(["", "failing"])),
            )
        while server.engine.running:
            server.engine.step()
            if draw(st.integers(0, 9)) == 0 and server.engine.running:
                server.engine.cancel(draw(st.sampled_from(sorted(server.engine.running))))
        server.settle()
        step = server.load.step(Choice("copy"), 0)
    assert all(isinstance(error, ZeroDivisionError) for _, error in server.failures)
    assert (step.num_looping, step.num_reading) == (0, 0)
    assert not server.drafter._requests
