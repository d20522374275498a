"""`auto` in one request: copies first, the chosen lead else, the target alone in long stretches."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from specdec.control.choices import COPY, OFF_CHOICE, Choice, Lead, Situation
from specdec.control.controller import Controller
from specdec.control.costs import load_bucket
from specdec.control.settings import ControlSettings
from specdec.control.steering import FIRST_STRETCH, TRIAL_ROUNDS, Seen, Steering
from specdec.control.traffic import Traffic
from specdec.control.trials import STREAMS_UNHURT
from specdec.drafting.head import HeadShape
from specdec.drafting.lookup import LookupDrafter
from specdec.drafting.prediction import PredictionDrafter
from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from specdec.drafting.steered import EngineLead, HeadLead, SteeredDrafter
from specdec.loop import Context, speculate
from tests.unit.scripted import (
    END_ID,
    PROMPT,
    KnowingTarget,
    ScriptedDrafter,
    always_right,
    make_round,
)
from tests.unit.test_costs import fill

CONTEXT = np.arange(5, dtype=np.int32)
HEAD, ENGINE = Lead("head", (1, 2, 3), is_head=True), Lead("draft", (1, 2, 3, 4))


class Copying:
    """Offers what it is given."""

    def __init__(self, tokens=()):
        self.tokens = tokens

    def propose(self, _context, _max_tokens):
        return Proposal(self.tokens, "lookup", 1) if self.tokens else NO_PROPOSAL

    def observe(self, confirmed):
        """Learn nothing."""


@dataclass
class Course:
    """A steering that has made up its mind."""

    choices: list[Choice]
    is_trial: bool = False
    stretch: int | None = 4
    heard: list = field(default_factory=list)
    has_left: bool = False
    is_finished: bool = False
    is_due: bool = True
    num_to_look_back: int = 64
    looks_back: bool = True
    looked: list = field(default_factory=list)

    def looked_back(self, offers):
        """Of copies of any length."""
        self.looked.append(
            [
                (each.num_rounds, each.num_drafted, each.num_accepted)
                for each in offers
                if each.drafter == COPY
            ]
        )

    def choice(self, _num_context, _num_left, *, can_read):
        self.can_read = can_read
        return self.choices.pop(0) if len(self.choices) > 1 else self.choices[0]

    def seen(self, seen):
        self.heard.append(seen)

    def finish(self):
        self.is_finished = True

    def leave(self):
        self.has_left = True


def steered(course, copying=(), engine=None):
    """A drafter with a head, and perhaps copying and an engine."""
    shape = HeadShape("head", 3, 3)
    engines = {"draft": EngineLead(ENGINE, engine)} if engine else {}
    return SteeredDrafter(
        course, list(copying), engines, {"head": HeadLead(HEAD, shape)}, clock=lambda: 0.0
    )


def test_the_longer_offer_is_taken_and_the_head_reads_along():
    """A copy beats the head only by going on for longer; guesses are asked for with either."""
    copying = Copying((1, 2, 3))
    drafter = steered(Course([Choice("head", 3)]), [copying])
    first = drafter.propose(CONTEXT, 100)
    assert (first.tokens, first.num_next) == ((1, 2, 3), 0)  # The first token does not wait.

    drafter.observe(make_round((1,), drafted=3, drafter="lookup", next_drafts=()))
    assert drafter.propose(CONTEXT, 100).num_next == 3
    drafter.observe(make_round((1,), drafted=3, drafter="lookup", next_drafts=(7, 8, 9)))
    assert drafter.propose(CONTEXT, 100).tokens == (7, 8, 9)

    drafter.observe(make_round((1,), drafted=3, drafter="head", next_drafts=(7, 8, 9)))
    copying.tokens = (1, 2, 3, 4)
    longer = drafter.propose(CONTEXT, 100)
    assert (longer.tokens, longer.drafter, longer.num_next) == ((1, 2, 3, 4), "lookup", 3)


@pytest.mark.parametrize(("num_copied", "depth", "drafter"), [(3, 1, "head"), (4, 1, "lookup")])
def test_copy_behind_one_matching_token_gives_way_to_any_guess_of_a_head(
    num_copied, depth, drafter
):
    """Such a match is often a chance, however short the head's own guesses are."""
    steering = steered(Course([Choice("head", depth)]), [Copying((1, 2, 3, 4)[:num_copied])])
    steering.propose(CONTEXT, 100)
    steering.observe(make_round((1,), drafted=0, next_drafts=(7, 8, 9)[:depth]))
    assert steering.propose(CONTEXT, 100).drafter == drafter


def test_engine_is_asked_for_the_chosen_length_where_nothing_is_copied():
    """What copying finds costs nothing: the engine is not asked beside it."""
    engine, copying = ScriptedDrafter(8, lambda place: place, prompt=()), Copying()
    drafter = steered(Course([Choice("draft", 2)]), [copying], engine)

    assert len(drafter.propose(CONTEXT, 100).tokens) == 2
    drafter.observe(make_round((1,), drafted=2, drafter="draft"))
    copying.tokens = (5,)
    assert drafter.propose(CONTEXT, 100).tokens == (5,)
    assert len(engine.asked) == 1


def test_head_that_is_left_out_is_not_asked_again():
    """It has not read what was said without it; in a trial of another it reads along."""
    course = Course([Choice("draft", 2), Choice("head", 3)], is_trial=True)
    drafter = steered(course, engine=ScriptedDrafter(2, lambda place: place, prompt=()))
    assert drafter.propose(CONTEXT, 100).num_next == 0
    drafter.observe(make_round((1,)))
    assert drafter.propose(CONTEXT, 100).num_next == 3

    course = Course([Choice(COPY), Choice("head", 3)])
    drafter = steered(course)
    assert drafter.propose(CONTEXT, 100).num_next is None
    drafter.observe(make_round((1,)))
    assert drafter.propose(CONTEXT, 100).num_next is None
    assert not course.can_read


@pytest.mark.parametrize("stretch", [1, 4, None])
def test_target_alone_runs_in_streaming_calls(stretch):
    """The tokens are the target's, each step is told of, and no pass is made one by one."""
    text = tuple(range(20, 31))
    course, target = Course([OFF_CHOICE], stretch=stretch), KnowingTarget(text)
    context = Context(np.asarray(PROMPT, dtype=np.int32), 50)

    rounds = list(speculate(context, target, steered(course)))

    assert tuple(context.tokens[len(PROMPT) :].tolist()) == text
    assert rounds[-1].ended
    assert (target.num_passes, target.num_streamed) == (0, len(text))
    assert [each.is_clean for each in course.heard][: 2 * (stretch or 2) : stretch or 2][0] is False


def test_speculation_goes_on_behind_a_stretch():
    """Off, on and off again within a request: the same text."""
    text = tuple(range(20, 60))
    choices = [OFF_CHOICE, Choice("draft", 3), Choice("draft", 3), OFF_CHOICE]
    engine = ScriptedDrafter(3, always_right(text))
    target = KnowingTarget(text)
    context = Context(np.asarray(PROMPT, dtype=np.int32), 30)

    for _ in speculate(context, target, steered(Course(choices), engine=engine)):
        pass

    assert tuple(context.tokens[len(PROMPT) :].tolist()) == text[:30]
    assert target.num_passes == 2
    assert END_ID not in context.tokens


def test_copies_that_were_missed_are_told_behind_a_stretch():
    """Rounds as copying would have made them, of the latest tokens."""
    text = (20, 21, 22, 23, 20, 21, 22, 23, 20, 21, 22, 23, 20, 21, 30, 31, 32, 33)
    course = Course([OFF_CHOICE], stretch=12)
    context = Context(np.asarray(PROMPT, dtype=np.int32), 18)
    drafter = steered(course, [LookupDrafter("lookup", 1, 4, 4)])

    for _ in speculate(context, KnowingTarget(text), drafter):
        pass

    # Behind the first, 21 22 23 20 are new, a round each; then 21 22 23 follow 20, with a 20; how
    # far the next copy would have gone nobody knows.
    assert course.looked == [[(4, 0, 0), (1, 3, 3)]]
    course.num_to_look_back = 6
    drafter = steered(course, [LookupDrafter("lookup", 1, 4, 4)])
    for _ in speculate(Context(np.asarray(PROMPT, np.int32), 18), KnowingTarget(text), drafter):
        pass
    assert course.looked[1] == [(1, 4, 4)]


def test_copies_that_a_head_left_no_room_for_are_told():
    """When a choice is due; else copying alone would look worthless beside any head."""
    said = ((27, 28), (29, 27), (28, 29), (27, 28))  # By the head's guesses, two tokens a round.
    course = Course([Choice("head", 3)], is_due=False)
    drafter = steered(course, [LookupDrafter("lookup", 1, 2, 2)])
    context = Context(np.asarray(PROMPT, dtype=np.int32), 20)
    for number, tokens in enumerate(((30,), *said)):
        drafter.propose(context.tokens, 10)
        drafter.observe(make_round(tokens, drafted=3, drafter="head", next_drafts=(1, 2, 3)))
        context.append(tokens)
        assert (course.looked, number) == ([], number)

    course.is_due = True
    drafter.propose(context.tokens, 10)
    # 27 28 29 27 are new, a round each; then 28 29 follow 27; of the next copy nobody knows.
    assert course.looked == [[(4, 0, 0), (1, 2, 2)]]


def test_end_of_an_answer_is_looked_at_too():
    """There small models repeat themselves most: without it copying would look worse than it is."""
    text = (20, 21, 22, 23, 24, 20, 21, 22, 23)
    course = Course([OFF_CHOICE], stretch=None)
    drafter = steered(course, [LookupDrafter("lookup", 1, 2, 2)])
    for _ in speculate(Context(np.asarray(PROMPT, np.int32), 9), KnowingTarget(text), drafter):
        pass
    assert course.looked == []

    drafter.close(is_complete=True)

    assert course.looked == [[(5, 0, 0), (1, 2, 2)]]
    assert course.is_finished


def test_prediction_is_not_asked_of_the_past():
    """It is followed from round to round."""
    text = tuple(range(20, 40))
    course = Course([OFF_CHOICE], stretch=8)
    predicted = PredictionDrafter("prediction", 2, 4, np.asarray(text, np.int32), len(PROMPT))
    drafter = steered(course, [LookupDrafter("lookup", 1, 4, 4), predicted])

    for _ in speculate(Context(np.asarray(PROMPT, np.int32), 18), KnowingTarget(text), drafter):
        pass
    drafter.close(is_complete=True)

    assert course.looked == []


def test_rounds_with_a_prediction_tell_of_it():
    """Of the copies that the choice takes, since nothing is looked back at."""
    predicted = PredictionDrafter(
        "prediction", 2, 4, np.arange(20, 28, dtype=np.int32), len(PROMPT)
    )
    course, context = Course([Choice(COPY)]), Context(np.asarray(PROMPT, dtype=np.int32), 14)
    for _ in speculate(context, KnowingTarget(tuple(range(20, 40))), steered(course, [predicted])):
        pass

    told = [_told(each) for heard in course.heard for each in heard.offers]
    assert {(COPY, 3, 3, 1), (COPY, 0, 0, 1)} <= {*told}


def _told(offer):
    return offer.drafter, offer.num_drafted, offer.num_accepted, offer.num_rounds


def test_what_rounds_came_to_is_told():
    """Offers of who was asked, rows of the pass, and who took the time; nothing behind the end."""
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
    assert (first.has_head, first.offers, first.lead) == (True, (), HEAD)
    assert second.offers == ()
    assert (second.num_drafted, second.num_rows) == (3, 1)
    assert [_told(each) for each in third.offers] == [("head", 3, 1, 1)]
    assert third.num_rows == 4


def steering(situation, *, share=0.0, inflight=1, draw=lambda: 0.0):
    """A real steering with a controller that knows nothing."""
    controller = Controller(ControlSettings(control_share=share), draw=draw)
    traffic = Traffic()
    traffic.set_inflight(inflight)
    return Steering(controller, situation, traffic, 10), controller, traffic


SITUATION = Situation("code", "greedy", (HEAD, ENGINE), True, Choice("head", 3))


@pytest.mark.parametrize(
    ("has_head", "num_prompts", "num_of_head"), [(False, 1, 0), (True, 1, 1), (None, 0, 0)]
)
def test_first_round_teaches_what_a_prompt_costs(has_head, num_prompts, num_of_head):
    """With the head that guesses and without; beside one that only reads it is neither."""
    course, controller, _ = steering(SITUATION)
    course.choice(10, 100, can_read=True)
    course.seen(Seen(0.2, 1, 10, has_head=has_head))
    course.seen(Seen(0.1, 2, 11, lead=ENGINE, num_drafted=2, draft_s=0.05))

    learned = controller.costs
    assert (learned.prompts.num_samples, learned.prompts.products[2, 2]) == (
        num_prompts,
        num_of_head,
    )
    assert learned.first_drafts["draft"].num_samples == 1


def test_control_group_runs_plain_to_its_end():
    """One call, and compared with the others; but nobody who asked for drafts is drawn."""
    plain, controller, _ = steering(SITUATION, share=0.5)
    assert plain.choice(10, 100, can_read=True) == OFF_CHOICE
    assert plain.stretch is None

    asked = Situation("code", "greedy", (HEAD,), True, Choice("head", 3), may_be_off=False)
    fixed, _, _ = steering(asked, share=0.5)
    assert not fixed.choice(10, 100, can_read=True).is_off
    assert controller.report("code") is None


def test_who_is_not_steered_tells_nothing_of_copies():
    """The copying of who asks for a drafter may be another's, the control group is left alone."""
    fixed = Situation("code", "greedy", (), True, Choice(COPY), may_be_off=False, is_fixed=True)
    assert not steering(fixed)[0].looks_back
    assert not steering(SITUATION, share=0.5)[0].looks_back
    assert steering(SITUATION)[0].looks_back

    course = Course([OFF_CHOICE], looks_back=False)
    drafter = steered(course, [LookupDrafter("lookup", 1, 4, 4)])
    for _ in speculate(Context(np.asarray(PROMPT, np.int32), 9), KnowingTarget((7,) * 20), drafter):
        pass
    drafter.close(is_complete=True)
    assert course.looked == []


def test_trial_is_over_whatever_fails_at_the_end():
    """Or no other would begin."""
    course = Course([Choice("head", 3)])
    drafter = steered(course, [Copying((1,))])
    drafter.propose(CONTEXT, 100)
    drafter.observe(make_round((1,)))
    course.looked = None
    with pytest.raises(AttributeError):
        drafter.close(is_complete=True)
    assert course.has_left


def test_one_trial_of_the_target_alone_is_enough():
    """Though its first step pays for the call; what begins next is a trial of something else."""
    first, controller, traffic = steering(SITUATION, draw=lambda: 0.5)
    first.choice(10, 100, can_read=True)
    first.leave()
    trial = Steering(controller, SITUATION, traffic, 10)
    assert trial.choice(10, 100, can_read=True) == OFF_CHOICE
    trial.seen(Seen(0.5, 1, 10))
    for num_said in range(1, TRIAL_ROUNDS):
        trial.seen(Seen(0.01, 1, 10 + num_said, is_clean=num_said > 1))
    trial.leave()

    for _ in range(2):
        later = Steering(controller, SITUATION, traffic, 10)
        choice = later.choice(10, 100, can_read=True)
    assert later.is_trial
    assert choice.lead == "draft"


def test_each_round_of_a_trial_tells_what_it_took_in_a_crowd():
    """All have paid for it; of who is no trial one round in so many is enough."""
    _, controller, traffic = steering(SITUATION, inflight=30, draw=lambda: 0.5)
    fill(controller.costs, load=30)
    for _ in range(2 * (30 // STREAMS_UNHURT)):  # the second that may try
        course = Steering(controller, SITUATION, traffic, 10)
        choice = course.choice(10, 100, can_read=True)
        if not course.is_trial:
            course.leave()
    assert course.is_trial

    course.seen(Seen(0.5, 1, 10))
    for number in range(1, TRIAL_ROUNDS):
        course.seen(Seen(0.1, 2, 10 + number, lead=HEAD, num_drafted=choice.num_tokens))
    learned = controller.costs.drafting.lines["head", load_bucket(30)]
    assert learned.num_samples == TRIAL_ROUNDS - 1
    course.choice(10 + TRIAL_ROUNDS, 90, can_read=True)
    assert not course.is_trial
    course.seen(Seen(0.1, 2, 10 + TRIAL_ROUNDS, lead=HEAD, num_drafted=3))
    assert learned.num_samples == TRIAL_ROUNDS - 1


@pytest.mark.parametrize(("num_inflight", "goes_on"), [(2, True), (3, False)])
def test_what_one_stream_can_afford_is_not_done_to_a_crowd(num_inflight, goes_on):
    """A trial is given up when many more have come, a choice made again; and another may begin."""
    _, controller, traffic = steering(SITUATION, draw=lambda: 0.5)
    fill(controller.costs)
    for _ in range(2):
        course = Steering(controller, SITUATION, traffic, 10)
        tried = course.choice(10, 100, can_read=True)
        course.seen(Seen(0.1, 1, 10, has_head=None))
    assert course.is_trial
    assert not tried.is_off

    traffic.set_inflight(num_inflight)
    assert course.is_due is not goes_on
    assert (course.choice(11, 99, can_read=True) == tried) is goes_on
    assert course.is_trial is goes_on
    course.leave()
    traffic.set_inflight(1)
    again = [Steering(controller, SITUATION, traffic, 10) for _ in range(2)]
    assert any(not each.choice(10, 100, can_read=True).is_off and each.is_trial for each in again)


def test_who_asks_for_the_target_alone_teaches_its_pace():
    """In one call to the end; then no trial needs to be spent on it."""
    alone = Situation("code", "greedy", (), False, OFF_CHOICE, may_be_off=False, is_fixed=True)
    plain, controller, traffic = steering(alone)
    target = KnowingTarget(tuple(range(20, 60)))
    context = Context(np.asarray(PROMPT, dtype=np.int32), 40)
    ticks = iter(range(10_000))
    drafter = SteeredDrafter(plain, [], {}, {}, clock=lambda: 0.01 * next(ticks))
    assert len(list(speculate(context, target, drafter))) == 40
    assert (target.num_passes, target.num_streamed) == (0, 40)
    drafter.close(is_complete=True)

    assert controller.costs.plain_s(1, 30) == pytest.approx(0.01, rel=0.01)
    for _ in range(2):
        course = Steering(controller, SITUATION, traffic, 10)
        tried = course.choice(10, 100, can_read=True)
    assert course.is_trial
    assert not tried.is_off


def test_unknown_deployment_drafts_as_configured_unless_it_is_busy():
    """Nothing is known at first: the configured drafter for few requests, none for many."""
    calm, _, _ = steering(SITUATION)
    assert calm.choice(10, 100, can_read=True) == Choice("head", 3)
    busy, _, _ = steering(SITUATION, inflight=30)
    assert busy.choice(10, 100, can_read=True) == OFF_CHOICE
    assert busy.stretch == FIRST_STRETCH


@pytest.mark.parametrize("num_at_a_time", [1, 16])
def test_plain_steps_count_however_many_come_at_a_time(num_at_a_time):
    """An engine may answer many in one call: a step is learned, and a stretch is as long."""
    draw = random.Random(1).random
    course, controller, _ = steering(SITUATION, inflight=30, draw=draw)
    course.choice(10, 1000, can_read=True)
    course.seen(Seen(0.5, 1, 10))
    num_stretches, num_context = 0, 11
    while num_context < 11 + 20 * 32:
        before = course.stretch
        course.choice(num_context, 1000, can_read=True)
        num_stretches += course.stretch != before
        course.seen(Seen(0.01 * num_at_a_time, num_at_a_time, num_context))
        num_context += num_at_a_time

    assert controller.costs.plain_s(30, 500) == pytest.approx(0.01, rel=0.05)
    # FIRST_STRETCH, and each further one twice as long.
    assert num_stretches == (20 * 32 // FIRST_STRETCH).bit_length() - 1


def test_rows_of_requests_that_are_over_are_forgotten():
    """Whatever became of them."""
    course, _, traffic = steering(SITUATION)
    drafter = steered(course, [Copying((1, 2, 3))])
    for _ in range(3):
        drafter.propose(CONTEXT, 100)
        drafter.observe(make_round((1,), drafted=3, drafter="lookup"))
    assert traffic.num_extra_rows == 3

    drafter.close(is_complete=False)
    assert traffic.num_extra_rows == 0


def test_crowd_that_has_just_come_teaches_no_times():
    """While many prompts are read a step takes long, whatever the load."""
    courses = [steering(SITUATION, inflight=8)]
    _, controller, traffic = courses[0]
    crowd = [Steering(controller, SITUATION, traffic, 10) for _ in range(8)]
    for each in crowd:
        each.choice(10, 200, can_read=True)
    first = crowd[0]
    first.seen(Seen(0.5, 1, 10))
    for number in range(32):
        first.seen(Seen(0.200, 1, 11 + number))
    assert not controller.costs.is_known

    for each in crowd[1:]:
        each.seen(Seen(0.5, 1, 10))
    for number in range(32):
        first.seen(Seen(0.030, 1, 43 + number))
    assert controller.costs.plain_s(8, 60) == pytest.approx(0.030, rel=0.01)

    for each in crowd:
        each.leave()
    assert traffic.is_settled()


def test_prompts_that_are_most_of_the_work_are_part_of_the_load():
    """Where half of the requests are always at their prompts, times are learned all the same."""
    course, controller, traffic = steering(SITUATION, inflight=8)
    course.choice(10, 2000, can_read=True)
    course.seen(Seen(0.5, 1, 10))
    traffic.read(4)
    for number in range(1000):
        course.seen(Seen(0.040, 1, 11 + number))

    assert controller.costs.has_baseline(8)
    assert controller.costs.plain_s(8, 500) == pytest.approx(0.040, rel=0.05)
