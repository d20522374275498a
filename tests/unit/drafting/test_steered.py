"""`auto` in one request: copies, else the chosen drafter, or tokens without speculation."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from specdec.drafting.candidates import EngineCandidate, HeadCandidate
from specdec.drafting.copying.choosing import better_copy
from specdec.drafting.copying.lookup import LookupDrafter
from specdec.drafting.copying.prediction import PredictionDrafter
from specdec.drafting.grammar import GrammarDrafter
from specdec.drafting.models.head import HeadShape
from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.drafting.steered import SteeredDrafter
from specdec.loop import Context, speculate
from specdec.steering.choices import (
    COPY,
    OFF_CHOICE,
    Candidate,
    Choice,
    EstimatedDrafter,
    RequestTraits,
)
from specdec.steering.controller import Controller
from specdec.steering.load import Load
from specdec.steering.request_steering import (
    CHOOSE_EVERY,
    FIRST_PLAIN_TOKENS,
    RequestSteering,
    RoundResult,
)
from specdec.steering.settings import ControlSettings
from tests.unit.constraints.small_vocabulary import constraint
from tests.unit.scripted import (
    END_ID,
    PROMPT,
    KnowingTarget,
    ScriptedDrafter,
    always_accepted,
    make_round,
)
from tests.unit.steering.test_costs import fill, seconds

CONTEXT = np.arange(5, dtype=np.int32)
HEAD, ENGINE = Candidate("head", (1, 2, 3), is_head=True), Candidate("draft", (1, 2, 3, 4))


class Copying:
    """A copy drafter that proposes the given tokens."""

    def __init__(self, tokens=()):
        self.tokens = tokens

    def propose(self, _context, _max_tokens):
        return Proposal(self.tokens, "lookup", 1) if self.tokens else NO_PROPOSAL

    def observe(self, confirmed):
        """Ignore the round."""


@dataclass
class Course:
    """A stand-in for RequestSteering with fixed choices, which keeps all reports."""

    choices: list[Choice]
    is_trial: bool = False
    num_plain: int | None = 4
    heard: list = field(default_factory=list)
    has_left: bool = False
    is_finished: bool = False
    is_due: bool = True
    looks_back: bool = True
    num_to_look_back: int = 64
    looked: list = field(default_factory=list)

    def draw_num_to_look_back(self):
        return self.num_to_look_back

    def learn_copies(self, results):
        """Keep the counts of copies of any length: (rounds, drafted, accepted)."""
        self.looked.append(
            [
                (each.num_rounds, each.num_draft_tokens, each.num_accepted)
                for each in results
                if each.drafter == EstimatedDrafter(COPY)
            ]
        )

    def choose(self, _num_context, _num_left, *, can_read):
        self.can_read = can_read
        return self.choices.pop(0) if len(self.choices) > 1 else self.choices[0]

    def learn_round(self, result):
        self.heard.append(result)

    def finish(self):
        self.is_finished = True

    def leave(self):
        self.has_left = True


def steered(course, copying=(), engine=None):
    """Return a steered drafter with a head, and with copy drafters and a draft engine if given."""
    shape = HeadShape("head", 3, 3)
    engines = {"draft": EngineCandidate(ENGINE, engine)} if engine else {}
    return SteeredDrafter(
        course, list(copying), engines, {"head": HeadCandidate(HEAD, shape)}, clock=lambda: 0.0
    )


def test_longer_draft_is_used_and_the_head_goes_on_drafting():
    """A copy is used only if it is longer than the head's draft; the head drafts in either case."""
    copying = Copying((1, 2, 3))
    drafter = steered(Course([Choice("head", 3)]), [copying])
    first = drafter.propose(CONTEXT, 100)
    # The head drafts nothing in the first round, so that the first token does not wait for it.
    assert (first.tokens, first.num_next) == ((1, 2, 3), 0)

    drafter.observe(make_round((1,), drafted=3, drafter="lookup", next_drafts=()))
    assert drafter.propose(CONTEXT, 100).num_next == 3
    drafter.observe(make_round((1,), drafted=3, drafter="lookup", next_drafts=(7, 8, 9)))
    assert drafter.propose(CONTEXT, 100).tokens == (7, 8, 9)

    drafter.observe(make_round((1,), drafted=3, drafter="head", next_drafts=(7, 8, 9)))
    copying.tokens = (1, 2, 3, 4)
    longer = drafter.propose(CONTEXT, 100)
    assert (longer.tokens, longer.drafter, longer.num_next) == ((1, 2, 3, 4), "lookup", 3)


@pytest.mark.parametrize(
    ("parents", "drafter"), [((-1, -1, 0, 2), "head"), ((-1, -1, 1, 2), "grammar")]
)
def test_a_tree_begins_with_forced_tokens_on_one_of_its_paths(parents, drafter):
    """Siblings follow nothing, so the order of the nodes does not tell."""
    own = Proposal((2, 0, 2, 5), "head", 3, parents=parents)

    found = better_copy(own, [forced(2, 2)], CONTEXT, 100)

    assert (found or own).drafter == drafter


def test_a_copy_that_begins_with_the_forced_tokens_goes_on_after_them():
    """One forced quote must not replace a long copy of what follows it."""
    copies = [forced(2, 2), Copying((2, 2, 7, 8, 9))]

    assert better_copy(NO_PROPOSAL, copies, CONTEXT, 100).tokens == (2, 2, 7, 8, 9)
    assert better_copy(NO_PROPOSAL, [forced(2, 2), Copying((2, 7))], CONTEXT, 100).tokens == (2, 2)


def forced(*tokens):
    """Return a grammar drafter whose guide forces these tokens, each `ab` of a small vocabulary."""
    text = "ab" * len(tokens)
    own = constraint(f'start: "{text}" ("a" | "b")')
    return GrammarDrafter("grammar", 7, 8, own, num_prompt=len(CONTEXT))


@pytest.mark.parametrize(
    ("head", "drafter", "tokens"),
    [
        ((2, 2, 5), "head", (2, 2, 5)),
        ((2, 5, 5), "grammar", (2, 2)),
        ((5,), "grammar", (2, 2)),
    ],
)
def test_forced_tokens_replace_a_draft_that_does_not_begin_with_them(head, drafter, tokens):
    """The forced tokens come in any case, and the head may know what follows."""
    own = steered(Course([Choice("head", 3)]), [forced(2, 2)])
    own.propose(CONTEXT, 100)
    own.observe(make_round((1,), drafted=2, drafter="grammar", next_drafts=()))
    own.propose(CONTEXT, 100)
    own.observe(make_round((1,), drafted=2, drafter="grammar", next_drafts=head))

    found = own.propose(CONTEXT, 100)

    assert (found.drafter, found.tokens, found.num_next) == (drafter, tokens, 3)


@pytest.mark.parametrize(("num_copied", "depth", "drafter"), [(3, 1, "head"), (4, 1, "lookup")])
def test_short_copy_gives_way_to_any_draft_of_a_head(num_copied, depth, drafter):
    """A copy of three tokens follows a single matching token, which is often a coincidence.

    So the head's draft is used, however short it is.
    """
    steering = steered(Course([Choice("head", depth)]), [Copying((1, 2, 3, 4)[:num_copied])])
    steering.propose(CONTEXT, 100)
    steering.observe(make_round((1,), drafted=0, next_drafts=(7, 8, 9)[:depth]))
    assert steering.propose(CONTEXT, 100).drafter == drafter


def test_draft_engine_is_asked_for_the_chosen_length_if_there_is_no_copy():
    """A copy costs nothing, so the draft engine is not asked when there is one."""
    engine, copying = ScriptedDrafter(8, lambda position: position, prompt=()), Copying()
    drafter = steered(Course([Choice("draft", 2)]), [copying], engine)

    assert len(drafter.propose(CONTEXT, 100).tokens) == 2
    drafter.observe(make_round((1,), drafted=2, drafter="draft"))
    copying.tokens = (5,)
    assert drafter.propose(CONTEXT, 100).tokens == (5,)
    assert len(engine.asked) == 1


def test_head_that_is_left_out_drafts_no_more():
    """It has not read the tokens generated without it.

    In a trial of another drafter it is not left out: it reads along.
    """
    course = Course([Choice("draft", 2), Choice("head", 3)], is_trial=True)
    drafter = steered(course, engine=ScriptedDrafter(2, lambda position: position, prompt=()))
    assert drafter.propose(CONTEXT, 100).num_next == 0
    drafter.observe(make_round((1,)))
    assert drafter.propose(CONTEXT, 100).num_next == 3

    course = Course([Choice(COPY), Choice("head", 3)])
    drafter = steered(course)
    assert drafter.propose(CONTEXT, 100).num_next is None
    drafter.observe(make_round((1,)))
    assert drafter.propose(CONTEXT, 100).num_next is None
    assert not course.can_read


@pytest.mark.parametrize("num_plain", [1, 4, None])
def test_without_speculation_the_target_streams(num_plain):
    """All tokens come from streaming calls, none from a verification, and each step is reported."""
    text = tuple(range(20, 31))
    course, target = Course([OFF_CHOICE], num_plain=num_plain), KnowingTarget(text)
    context = Context(np.asarray(PROMPT, dtype=np.int32), 50)

    rounds = list(speculate(context, target, steered(course)))

    assert tuple(context.tokens[len(PROMPT) :].tolist()) == text
    assert rounds[-1].ended
    assert (target.num_passes, target.num_streamed) == (0, len(text))
    assert [each.is_clean for each in course.heard][: 2 * (num_plain or 2) : num_plain or 2][
        0
    ] is False


def test_speculation_continues_after_plain_tokens():
    """Off, on and off again within a request give the same text."""
    text = tuple(range(20, 60))
    choices = [OFF_CHOICE, Choice("draft", 3), Choice("draft", 3), OFF_CHOICE]
    engine = ScriptedDrafter(3, always_accepted(text))
    target = KnowingTarget(text)
    context = Context(np.asarray(PROMPT, dtype=np.int32), 30)

    for _ in speculate(context, target, steered(Course(choices), engine=engine)):
        pass

    assert tuple(context.tokens[len(PROMPT) :].tolist()) == text[:30]
    assert target.num_passes == 2
    assert END_ID not in context.tokens


def test_missed_copies_are_reported_after_plain_tokens():
    """The report has the rounds that copy drafters would have made of the latest tokens."""
    text = (20, 21, 22, 23, 20, 21, 22, 23, 20, 21, 22, 23, 20, 21, 30, 31, 32, 33)
    course = Course([OFF_CHOICE], num_plain=12)
    context = Context(np.asarray(PROMPT, dtype=np.int32), 18)
    drafter = steered(course, [LookupDrafter("lookup", 1, 4, 4)])

    for _ in speculate(context, KnowingTarget(text), drafter):
        pass

    # After the first token, 21 22 23 20 are new, one round each. Then 21 22 23 are copied, and the
    # target adds 20. The length of the next copy is not known yet.
    assert course.looked == [[(4, 0, 0), (1, 3, 3)]]
    course.num_to_look_back = 6
    drafter = steered(course, [LookupDrafter("lookup", 1, 4, 4)])
    for _ in speculate(Context(np.asarray(PROMPT, np.int32), 18), KnowingTarget(text), drafter):
        pass
    assert course.looked[1] == [(1, 4, 4)]


def test_copies_that_were_not_used_beside_a_head_are_reported():
    """They are reported when a choice is due; else copying would look useless beside any head."""
    # Drafted by the head, two tokens a round.
    confirmed_tokens = ((27, 28), (29, 27), (28, 29), (27, 28))
    course = Course([Choice("head", 3)], is_due=False)
    drafter = steered(course, [LookupDrafter("lookup", 1, 2, 2)])
    context = Context(np.asarray(PROMPT, dtype=np.int32), 20)
    for number, tokens in enumerate(((30,), *confirmed_tokens)):
        drafter.propose(context.tokens, 10)
        drafter.observe(make_round(tokens, drafted=3, drafter="head", next_drafts=(1, 2, 3)))
        context.append(tokens)
        assert (course.looked, number) == ([], number)

    course.is_due = True
    drafter.propose(context.tokens, 10)
    # 27 28 29 27 are new, one round each. Then 28 29 are copied. The next copy is not known yet.
    assert course.looked == [[(4, 0, 0), (1, 2, 2)]]


def test_missed_copies_at_the_end_of_an_answer_are_reported_too():
    """Small models repeat themselves most there; without it copying would look worse than it is."""
    text = (20, 21, 22, 23, 24, 20, 21, 22, 23)
    course = Course([OFF_CHOICE], num_plain=None)
    drafter = steered(course, [LookupDrafter("lookup", 1, 2, 2)])
    for _ in speculate(Context(np.asarray(PROMPT, np.int32), 9), KnowingTarget(text), drafter):
        pass
    assert course.looked == []

    drafter.close(is_complete=True)

    assert course.looked == [[(5, 0, 0), (1, 2, 2)]]
    assert course.is_finished


def test_prediction_is_not_asked_about_earlier_positions():
    """It keeps state from round to round, so no missed copies are reported."""
    text = tuple(range(20, 40))
    course = Course([OFF_CHOICE], num_plain=8)
    predicted = PredictionDrafter("prediction", 2, 4, np.asarray(text, np.int32), len(PROMPT))
    drafter = steered(course, [LookupDrafter("lookup", 1, 4, 4), predicted])

    for _ in speculate(Context(np.asarray(PROMPT, np.int32), 18), KnowingTarget(text), drafter):
        pass
    drafter.close(is_complete=True)

    assert course.looked == []


def test_rounds_with_a_prediction_report_its_copies():
    """Each round reports its copy, or that it had none, because nothing is reported later."""
    predicted = PredictionDrafter(
        "prediction", 2, 4, np.arange(20, 28, dtype=np.int32), len(PROMPT)
    )
    course, context = Course([Choice(COPY)]), Context(np.asarray(PROMPT, dtype=np.int32), 14)
    for _ in speculate(context, KnowingTarget(tuple(range(20, 40))), steered(course, [predicted])):
        pass

    told = [_told(each) for heard in course.heard for each in heard.draft_results]
    assert {(COPY, 3, 3, 1), (COPY, 0, 0, 1)} <= {*told}


def _told(result):
    return result.drafter.name, result.num_draft_tokens, result.num_accepted, result.num_rounds


def test_each_round_is_reported():
    """The report has the drafter that ran, the pass's rows, and the drafted and accepted tokens."""
    course = Course([Choice("head", 3)])
    drafter = steered(course, [Copying()])
    for next_drafts in ((), (7, 8, 9), ()):
        offered = drafter.propose(CONTEXT, 100)
        drafter.observe(
            make_round(
                (1, 2),
                drafted=len(offered.tokens),
                accepted=min(1, len(offered.tokens)),
                drafter=offered.drafter,
                next_drafts=next_drafts,
            )
        )

    first, second, third = course.heard
    assert (first.has_head, first.draft_results, first.candidate) == (True, (), HEAD)
    assert second.draft_results == ()
    assert (second.num_draft_tokens, second.num_rows) == (3, 1)
    assert [_told(each) for each in third.draft_results] == [("head", 3, 1, 1)]
    assert third.num_rows == 4


@pytest.mark.parametrize("choice", [Choice("head", 3), OFF_CHOICE])
def test_prompt_that_was_read_before_the_first_choice_is_not_timed(choice):
    """Engines with a batch loop read prompts by themselves; the first choice comes afterwards."""
    course = Course([choice])
    drafter = steered(course, [Copying()])
    drafter.observe(make_round((1,)))
    drafter.propose(CONTEXT, 100)
    drafter.observe(make_round((2,)))
    assert [each.has_head for each in course.heard] == [None]


def test_nothing_is_learned_from_a_proposal_that_was_not_verified():
    """An engine whose step is full drops draft tokens; only the verified part of a draft counts."""
    course = Course([Choice("head", 3)])
    drafter = steered(course, [Copying()])
    for next_drafts, drafted, accepted in (((7, 8, 9), 0, 0), ((7, 8, 9), 0, 0), ((), 2, 1)):
        drafter.propose(CONTEXT, 100)
        drafter.observe(
            make_round(
                (1,) * (accepted + 1),
                drafted=drafted,
                accepted=accepted,
                drafter="head",
                next_drafts=next_drafts,
            )
        )
    _, second, third = course.heard
    assert second.draft_results == ()
    assert [(each.depth, each.num_accepted) for each in third.draft_results] == [(2, 1)]


def steering(traits, *, share=0.0, inflight=1, draw=lambda: 0.0):
    """Return the steering of a request, its controller without any evidence, and the load."""
    controller = Controller(ControlSettings(control_share=share), draw=draw)
    load = Load()
    load.set_inflight(inflight)
    return RequestSteering(controller, traits, load, 10), controller, load


TRAITS = RequestTraits(
    "code", "greedy", (HEAD, ENGINE), max_copy_tokens=7, default=Choice("head", 3)
)


@pytest.mark.parametrize("has_head", [False, True, None])
def test_first_round_measures_the_cost_of_a_prompt(has_head):
    """Its time counts with a drafting head and without a head, not with one that reads along."""
    course, controller, _ = steering(TRAITS)
    course.choose(10, 100, can_read=True)
    course.learn_round(RoundResult(0.2, 1, 10, has_head=has_head))
    course.learn_round(RoundResult(0.1, 2, 11, candidate=ENGINE, num_draft_tokens=2, draft_s=0.05))

    num_prompts = [mean[1] for mean in controller.state()["costs"]["readings"]]
    assert num_prompts == [1] * (1 if has_head is None else 2)
    assert controller.costs.reading_s("draft", 11, is_head=False) > 0


def test_control_group_runs_without_speculation_to_its_end():
    """It runs in one call; a request that asks for a drafter is never drawn into the group."""
    plain, controller, _ = steering(TRAITS, share=0.5)
    assert plain.choose(10, 100, can_read=True) == OFF_CHOICE
    assert plain.num_plain is None

    asked = RequestTraits(
        "code", "greedy", (HEAD,), max_copy_tokens=7, default=Choice("head", 3), may_be_off=False
    )
    fixed, _, _ = steering(asked, share=0.5)
    assert not fixed.choose(10, 100, can_read=True).is_off
    assert controller.take_report("code") is None


def test_only_requests_that_the_controller_steers_report_missed_copies():
    """A request that names its drafter may copy in another way; the control group is left alone."""
    fixed = RequestTraits(
        "code",
        "greedy",
        (),
        max_copy_tokens=7,
        default=Choice(COPY),
        may_be_off=False,
        is_fixed=True,
    )
    assert not steering(fixed)[0].looks_back
    assert not steering(TRAITS, share=0.5)[0].looks_back
    assert steering(TRAITS)[0].looks_back

    course = Course([OFF_CHOICE], looks_back=False)
    drafter = steered(course, [LookupDrafter("lookup", 1, 4, 4)])
    for _ in speculate(Context(np.asarray(PROMPT, np.int32), 9), KnowingTarget((7,) * 20), drafter):
        pass
    drafter.close(is_complete=True)
    assert course.looked == []


def test_trial_is_over_even_if_closing_fails():
    """Otherwise no other trial would begin."""
    course = Course([Choice("head", 3)])
    drafter = steered(course, [Copying((1,))])
    drafter.propose(CONTEXT, 100)
    drafter.observe(make_round((1,)))
    course.looked = None
    with pytest.raises(AttributeError):
        drafter.close(is_complete=True)
    assert course.has_left


def test_each_round_of_a_trial_reports_its_time_under_load():
    """All requests in flight pay for a trial; of other rounds a random share is enough."""
    _, controller, load = steering(TRAITS, inflight=30, draw=lambda: 0.5)
    fill(controller.costs, load=30)
    # The second request that may begin with a trial does so.
    for _ in range(2 * 30):
        course = RequestSteering(controller, TRAITS, load, 10)
        choice = course.choose(10, 100, can_read=True)
        if not course.is_trial:
            course.leave()
    assert course.is_trial

    course.learn_round(RoundResult(0.5, 1, 10))
    for number in range(1, CHOOSE_EVERY):
        course.learn_round(
            RoundResult(0.1, 2, 10 + number, candidate=HEAD, num_draft_tokens=choice.num_tokens)
        )

    def num_timed():
        return controller.costs.num_timed("head", 30, time.time())

    assert num_timed() == pytest.approx(CHOOSE_EVERY - 1, rel=0.05)
    course.choose(10 + CHOOSE_EVERY, 90, can_read=True)
    assert not course.is_trial
    course.learn_round(RoundResult(0.1, 2, 10 + CHOOSE_EVERY, candidate=HEAD, num_draft_tokens=3))
    assert num_timed() == pytest.approx(CHOOSE_EVERY - 1, rel=0.05)


@pytest.mark.parametrize(("num_inflight", "goes_on"), [(2, True), (3, False)])
def test_trial_is_given_up_if_the_load_more_than_doubles(num_inflight, goes_on):
    """The choice is then made again, and later another trial may begin."""
    traits = replace(TRAITS, candidates=(HEAD, Candidate("new", (2,))))
    _, controller, load = steering(traits, draw=lambda: 0.5)
    fill(controller.costs)
    for _ in range(2):
        course = RequestSteering(controller, traits, load, 10)
        tried = course.choose(10, 100, can_read=True)
        course.learn_round(RoundResult(0.1, 1, 10, has_head=None))
    assert course.is_trial
    assert not tried.is_off

    load.set_inflight(num_inflight)
    assert course.is_due is not goes_on
    assert (course.choose(11, 99, can_read=True) == tried) is goes_on
    assert course.is_trial is goes_on
    course.leave()
    load.set_inflight(1)
    again = [RequestSteering(controller, traits, load, 10) for _ in range(2)]
    assert any(not each.choose(10, 100, can_read=True).is_off and each.is_trial for each in again)


def test_request_without_speculation_measures_the_time_of_a_plain_step():
    """It runs in one call to the end; afterwards no trial without speculation is needed."""
    alone = RequestTraits(
        "code", "greedy", (), max_copy_tokens=0, default=OFF_CHOICE, may_be_off=False, is_fixed=True
    )
    plain, controller, load = steering(alone)
    target = KnowingTarget(tuple(range(20, 60)))
    context = Context(np.asarray(PROMPT, dtype=np.int32), 40)
    ticks = iter(range(10_000))
    drafter = SteeredDrafter(plain, [], {}, {}, clock=lambda: 0.01 * next(ticks))
    assert len(list(speculate(context, target, drafter))) == 40
    assert (target.num_passes, target.num_streamed) == (0, 40)
    drafter.close(is_complete=True)

    assert seconds(controller.costs, OFF_CHOICE, context=30) == pytest.approx(0.01, rel=0.01)
    for _ in range(2):
        course = RequestSteering(controller, TRAITS, load, 10)
        tried = course.choose(10, 100, can_read=True)
    assert course.is_trial
    assert not tried.is_off


def test_unknown_deployment_drafts_as_configured_unless_it_is_busy():
    """Without evidence, few requests in flight get the configured drafter and many get none."""
    calm, _, _ = steering(TRAITS)
    assert calm.choose(10, 100, can_read=True) == Choice("head", 3)
    busy, _, _ = steering(TRAITS, inflight=30)
    assert busy.choose(10, 100, can_read=True) == OFF_CHOICE
    assert busy.num_plain == FIRST_PLAIN_TOKENS


@pytest.mark.parametrize("num_at_a_time", [1, 16])
def test_plain_steps_count_however_many_tokens_come_at_a_time(num_at_a_time):
    """If an engine returns many at once, the learned time is that of one step.

    The controller also chooses as often.
    """
    draw = random.Random(1).random
    course, controller, _ = steering(TRAITS, inflight=30, draw=draw)
    course.choose(10, 1000, can_read=True)
    course.learn_round(RoundResult(0.5, 1, 10))
    num_longer, num_context = 0, 11
    while num_context < 11 + 200 * 32:
        before = course.num_plain
        course.choose(num_context, 1000, can_read=True)
        num_longer += course.num_plain != before
        course.learn_round(RoundResult(0.01 * num_at_a_time, num_at_a_time, num_context))
        num_context += num_at_a_time

    assert seconds(controller.costs, OFF_CHOICE, 30, context=500) == pytest.approx(0.01, rel=0.05)
    # The first time FIRST_PLAIN_TOKENS tokens, each further time twice as many.
    assert num_longer == (200 * 32 // FIRST_PLAIN_TOKENS).bit_length() - 1


def test_rows_of_ended_requests_no_longer_count():
    """This holds even if the request did not run to its end."""
    course, _, load = steering(TRAITS)
    drafter = steered(course, [Copying((1, 2, 3))])
    for _ in range(3):
        drafter.propose(CONTEXT, 100)
        drafter.observe(make_round((1,), drafted=3, drafter="lookup"))
    assert load.step(OFF_CHOICE, 10).num_rows == 1 + 3

    drafter.close(is_complete=False)
    assert load.step(OFF_CHOICE, 10).num_rows == 1


def test_steps_beside_prompts_that_are_read_hardly_count():
    """A step then takes longer than its load explains."""
    _, controller, load = steering(TRAITS, inflight=8)
    requests = [RequestSteering(controller, TRAITS, load, 10) for _ in range(8)]
    for each in requests:
        each.choose(10, 200, can_read=True)
    first = requests[0]
    first.learn_round(RoundResult(0.5, 1, 10))
    for number in range(32):
        first.learn_round(RoundResult(0.200, 1, 11 + number))

    for each in requests[1:]:
        each.learn_round(RoundResult(0.5, 1, 10))
    for number in range(64):
        first.learn_round(RoundResult(0.030, 1, 43 + number))
    assert seconds(controller.costs, OFF_CHOICE, 8) == pytest.approx(0.030, rel=0.2)
    for each in requests:
        each.leave()
