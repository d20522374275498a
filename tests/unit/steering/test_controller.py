"""Tests of the controller's modes, of the control group's interval, and of trials."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from specdec.errors import ConfigurationError
from specdec.steering.acceptance_estimates import DraftResult
from specdec.steering.choices import (
    COPY,
    OFF_CHOICE,
    Candidate,
    Choice,
    EstimatedDrafter,
    RequestTraits,
)
from specdec.steering.control_group import MIN_REQUESTS, ControlGroup
from specdec.steering.controller import KNOWN_ROUNDS, TRIAL_EVERY, Controller
from specdec.steering.estimates import HALF_LIFE_S, PRIOR_ROUNDS
from specdec.steering.modes import parse_schedule, scheduled
from specdec.steering.predictions import RequestProgress
from specdec.steering.settings import ControlSettings
from specdec.steering.steps import Step
from tests.unit.steering.test_costs import fill

TRAITS = RequestTraits(
    "code",
    "greedy",
    (Candidate("draft", (1, 2, 3, 4)),),
    max_copy_tokens=7,
    default=Choice("draft", 2),
)
START = RequestProgress(num_inflight=1, num_context=100, num_left=200, is_start=True)


def test_first_rule_of_a_schedule_that_holds_counts():
    """The schedule has a rule by load, then the guide's 8 draft tokens at night and 2 at noon.

    If no rule holds, speculation is off.
    """
    rules = parse_schedule("load<=2:6, 22-6h:8, 12-14h:2, else:4")

    assert scheduled(rules, 1, 23) == 6
    assert [scheduled(rules, 9, hour) for hour in (23, 3, 6, 12, 14)] == [8, 8, 4, 2, 4]
    assert scheduled(parse_schedule("load<=2:6"), 3, 0) == 0


@pytest.mark.parametrize("rule", ["8", "load<2:8", "22-26h:8", "else:-1", "night:8"])
def test_invalid_schedules_are_refused(rule):
    """The message names the parameter and quotes the rule."""
    with pytest.raises(ConfigurationError, match=re.escape(f"speculation_schedule has {rule!r};")):
        ControlSettings("schedule", f"load<=2:6, {rule}")


@pytest.mark.parametrize(
    ("mode", "schedule", "share", "message"),
    [
        ("adaptive", "", 0.01, "speculation must be one of auto, .*; given 'adaptive'"),
        ("schedule", "", 0.01, "speculation_schedule and speculation .* given '' and 'schedule'"),
        ("auto", "else:1", 0.01, "speculation_schedule and speculation .* given 'else:1' and 'aut"),
        ("auto", "", 0.9, "control_share must be from 0 to 0.5; given 0.9"),
    ],
)
def test_invalid_settings_are_refused(mode, schedule, share, message):
    """They are refused when the settings are made, not at the first request.

    The message names the parameter and has the value given.
    """
    with pytest.raises(ConfigurationError, match=message):
        ControlSettings(mode, schedule, share)


def test_schedule_chooses_the_longest_draft_that_it_allows():
    """With 0 draft tokens in the schedule, speculation is off."""
    controller = Controller(ControlSettings("schedule", "load<=1:9, load<=8:3, else:0"))
    chosen = [
        controller.choose(TRAITS, RequestProgress(load, 100, 200, is_start=True))
        for load in (1, 8, 9)
    ]
    assert chosen == [Choice("draft", 4), Choice("draft", 3), OFF_CHOICE]


def test_fixed_and_off_ignore_measurements():
    """These modes have no control group either."""
    for mode, choice in (("fixed", Choice("draft", 2)), ("off", OFF_CHOICE)):
        controller = Controller(ControlSettings(mode))
        fill(controller.costs)
        assert controller.choose(TRAITS, START) == choice
        assert not controller.draw_control()


@pytest.mark.parametrize(
    ("accepted_drafter", "chosen", "num_draft_tokens"),
    [(COPY, Choice(COPY), 6.0), ("draft", Choice("draft", 2), 2.0), ("", OFF_CHOICE, 0.0)],
)
def test_report_has_the_draft_tokens_of_the_choice(accepted_drafter, chosen, num_draft_tokens):
    """For copy drafters, whose drafts have any length, it has their mean; 0 would look like off."""
    candidate = Candidate("draft", (2,))
    traits = RequestTraits(
        "code", "greedy", (candidate,), max_copy_tokens=7, default=Choice("draft", 2)
    )
    controller = Controller(ControlSettings("auto"), draw=lambda: 0.5)
    fill(controller.costs)
    for size in (4, 8, 0) * 100:
        num_copied = size if accepted_drafter == COPY else 0
        copied = DraftResult(EstimatedDrafter(COPY), num_copied, num_copied, num_copied)
        num_accepted = 2 if accepted_drafter == "draft" else 0
        drafted = DraftResult(EstimatedDrafter("draft"), 2, 2, num_accepted)
        controller.learn_drafts(traits, [copied, drafted])

    assert controller.choose(traits, START) == chosen
    assert controller.take_report("code").num_draft_tokens == pytest.approx(
        num_draft_tokens, rel=0.01
    )


def test_article_switches_by_accepted_of_drafted():
    """The mode `article` speculates above 0.6 accepted ÷ drafted, and is off below 0.5.

    Between them nothing changes; before any measurement it speculates.
    """
    controller = Controller(ControlSettings("article"))
    rng = random.Random(1)

    def draft(alpha, num_rounds=2000):
        for _ in range(num_rounds):
            accepted = int(rng.random() < alpha) and 1 + int(rng.random() < alpha)
            controller.learn_drafts(
                TRAITS, [DraftResult(EstimatedDrafter("draft"), 2, 2, accepted)]
            )
        return controller.choose(TRAITS, START)

    assert controller.choose(TRAITS, START) == Choice("draft", 2)
    assert draft(0.8) == Choice("draft", 2)  # 0.72 accepted ÷ drafted
    assert draft(0.66) == Choice("draft", 2)  # 0.55
    assert draft(0.5) == OFF_CHOICE  # 0.375
    assert draft(0.66) == OFF_CHOICE
    assert draft(0.9) == Choice("draft", 2)


def test_interval_of_the_measured_gain_holds_the_true_gain():
    """This holds in about 95 of 100 cases, with requests of very different lengths."""
    hits = 0
    for seed in range(200):
        rng, group = random.Random(seed), ControlGroup()
        for is_plain, count, pace in ((False, 400, 0.010), (True, 30, 0.015)):
            for _ in range(count):
                tokens = rng.randint(5, 200)
                group.add(tokens * pace * rng.lognormvariate(0, 0.2), tokens, is_plain=is_plain)
        measured = group.measured
        assert measured.low < measured.gain < measured.high
        hits += measured.low <= 1.5 <= measured.high

    assert 180 <= hits <= 199


def test_no_gain_is_reported_from_few_requests():
    """Requests without tokens after the first response do not count."""
    group = ControlGroup()
    for _ in range(MIN_REQUESTS - 1):
        group.add(1.0, 10, is_plain=True)
        group.add(1.0, 0, is_plain=True)
    for _ in range(100):
        group.add(1.0, 20, is_plain=False)
    assert group.measured is None
    group.add(1.0, 10, is_plain=True)
    assert group.measured.gain == pytest.approx(2.0)


def learn(controller, traits, drafter, accepted, seconds, num_rounds=200):
    """Report rounds in which `drafter` drafts two tokens and `accepted` of them are accepted."""
    for _ in range(num_rounds):
        controller.learn_step(Step(Choice(drafter, 2), 1, 1, 3, 100), seconds)
        controller.learn_drafts(traits, [DraftResult(EstimatedDrafter(drafter), 2, 2, accepted)])


def trials_of(controller, traits, num_requests, progress=START):
    """Return the choices of the trials of the next requests; each trial ends at once."""
    tried = []
    for _ in range(num_requests):
        tried.append(controller.begin_trial(traits, progress))
        controller.end_trial()
    return [each for each in tried if each is not None]


@pytest.mark.parametrize(("drafter", "is_tried"), [("poor", True), ("slow", False)])
def test_choice_is_tried_again_once_its_evidence_has_faded(drafter, is_tried):
    """A drafter without accepted tokens is; one that is far too slow could never pay off."""
    traits = RequestTraits(
        "code",
        "greedy",
        (Candidate("draft", (2,)), Candidate(drafter, (2,))),
        max_copy_tokens=0,
        default=Choice("draft", 2),
    )
    now_s = [1e9]
    controller = Controller(ControlSettings(), clock=lambda: now_s[0], draw=lambda: 0.5)
    learn(controller, traits, "draft", 2, 0.013)
    learn(
        controller,
        traits,
        drafter,
        0 if drafter == "poor" else 2,
        0.100 if drafter == "slow" else 0.013,
    )
    for _ in range(200):
        controller.learn_step(Step(OFF_CHOICE, 1, 0, 1, 100), 0.010)

    assert controller.choose(traits, START) == Choice("draft", 2)
    assert trials_of(controller, traits, 4 * TRIAL_EVERY) == []
    now_s[0] += 20 * HALF_LIFE_S
    learn(controller, traits, "draft", 2, 0.013)
    tried = {each.drafter for each in trials_of(controller, traits, 4 * TRIAL_EVERY)}
    assert (drafter in tried) is is_tried


def test_later_change_to_a_draft_engine_counts_the_time_to_read_the_prompt():
    """It counts once: an engine that has read the prompt costs its drafts only."""
    controller = Controller(ControlSettings("auto", control_share=0.0), draw=lambda: 0.5)
    learn(controller, TRAITS, "draft", 2, 0.013, num_rounds=50)
    for _ in range(50):
        controller.learn_step(Step(OFF_CHOICE, 1, 0, 1, 100), 0.010)
        controller.learn_first_draft("draft", 100, 2.0)
    later = replace(START, is_start=False)

    assert controller.choose(TRAITS, later).drafter != "draft"
    has_read = replace(later, readers=frozenset(["draft"]))
    assert controller.choose(TRAITS, has_read).drafter == "draft"


UNTRIED = replace(TRAITS, candidates=(*TRAITS.candidates, Candidate("new", (2,))))


def test_new_task_has_trials_soon_and_later_now_and_then():
    """With n requests in flight, one in n of these requests begins with a trial."""
    for load in (1, 8):
        controller = Controller(ControlSettings(), draw=lambda: 0.5)
        fill(controller.costs, load=load)
        progress = replace(START, num_inflight=load)
        numbers = [
            number for number in range(1, 50 * load) if trials_of(controller, UNTRIED, 1, progress)
        ]
        assert numbers == [load * number for number in (2, 4, 8, 16, 32, 48)]


def test_no_trial_begins_before_eight_steps_were_timed():
    """A server's first answer may be short and slow, so the default is timed some more first."""
    controller = Controller(ControlSettings(), draw=lambda: 0.5)
    fill(controller.costs, PRIOR_ROUNDS - 1)
    assert trials_of(controller, UNTRIED, 3) == []

    fill(controller.costs)
    assert trials_of(controller, UNTRIED, 1)


def test_one_trial_runs_at_a_time():
    """The next one begins only after it has ended."""
    controller = Controller(ControlSettings(), draw=lambda: 0.5)
    fill(controller.costs)
    tried = [controller.begin_trial(UNTRIED, START) for _ in range(8)]
    assert len([each for each in tried if each is not None]) == 1
    controller.end_trial()
    assert trials_of(controller, UNTRIED, TRIAL_EVERY)


def test_under_load_a_drafter_is_used_only_after_it_was_timed_there():
    """With many requests in flight, times of other loads do not count.

    Trials take the drafter, until enough rounds at this load have been timed.
    """
    controller = Controller(ControlSettings("auto", control_share=0.0), draw=lambda: 0.5)
    loaded = RequestProgress(num_inflight=8, num_context=100, num_left=200, is_start=True)
    fill(controller.costs)
    for _ in range(200):
        controller.learn_drafts(TRAITS, [DraftResult(EstimatedDrafter("draft"), 4, 4, 4)])
        controller.learn_step(Step(OFF_CHOICE, 8, 0, 8, 100), 0.0115)
    assert controller.choose(TRAITS, START) == Choice("draft", 4)
    assert controller.choose(TRAITS, loaded) == OFF_CHOICE

    assert {*trials_of(controller, TRAITS, 8 * TRIAL_EVERY, loaded)} == {Choice("draft", 4)}
    for _ in range(KNOWN_ROUNDS + 1):
        assert controller.choose(TRAITS, loaded) == OFF_CHOICE
        controller.learn_step(Step(Choice("draft", 4), 8, 1, 12, 100), 0.0135)
    assert controller.choose(TRAITS, loaded) == Choice("draft", 4)


def test_under_load_requests_that_must_draft_get_the_default():
    """These requests ask for a number of draft tokens, and their drafter was never timed."""
    controller = Controller(ControlSettings("auto", control_share=0.0), draw=lambda: 0.5)
    fill(controller.costs, load=8)
    asked = replace(TRAITS, candidates=(Candidate("other", (2,)),), may_be_off=False)
    asked = replace(asked, default=Choice("other", 2))

    loaded = RequestProgress(num_inflight=8, num_context=100, num_left=200, is_start=True)
    assert controller.choose(asked, loaded) == Choice("other", 2)
