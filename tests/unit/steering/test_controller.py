"""Tests of the controller's modes, of the control group's interval, and of trials."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from specdec.errors import ConfigurationError
from specdec.steering.acceptance_estimates import DraftResult
from specdec.steering.choices import COPY, OFF_CHOICE, Choice, Lead, RequestTraits
from specdec.steering.control_group import MIN_REQUESTS, ControlGroup
from specdec.steering.controller import MIN_TIMED_OF_MANY, REVISIT_EVERY, Controller
from specdec.steering.costs import Sample
from specdec.steering.modes import parse_schedule, scheduled
from specdec.steering.predictions import RequestProgress
from specdec.steering.settings import ControlSettings
from specdec.steering.trials import TRIAL_EVERY
from tests.unit.steering.test_costs import fill

SITUATION = RequestTraits(
    "code", "greedy", (Lead("draft", (1, 2, 3, 4)),), True, Choice("draft", 2)
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


@pytest.mark.parametrize("text", ["8", "load<2:8", "22-26h:8", "else:-1", "night:8"])
def test_invalid_schedules_are_refused(text):
    """The message has the rule."""
    with pytest.raises(ConfigurationError, match=text.replace("+", ".")):
        ControlSettings("schedule", text)


@pytest.mark.parametrize(
    ("mode", "schedule", "share"),
    [("adaptive", "", 0.01), ("schedule", "", 0.01), ("auto", "else:1", 0.01), ("auto", "", 0.9)],
)
def test_invalid_settings_are_refused(mode, schedule, share):
    """They are refused when the settings are made, not at the first request."""
    with pytest.raises(ConfigurationError):
        ControlSettings(mode, schedule, share)


def test_schedule_chooses_the_longest_draft_that_it_allows():
    """With 0 draft tokens in the schedule, speculation is off."""
    controller = Controller(ControlSettings("schedule", "load<=1:9, load<=8:3, else:0"))
    chosen = [
        controller.choose(SITUATION, RequestProgress(load, 100, 200, is_start=True))
        for load in (1, 8, 9)
    ]
    assert chosen == [Choice("draft", 4), Choice("draft", 3), OFF_CHOICE]


def test_fixed_and_off_ignore_measurements():
    """These modes have no control group either."""
    for mode, choice in (("fixed", Choice("draft", 2)), ("off", OFF_CHOICE)):
        controller = Controller(ControlSettings(mode))
        fill(controller.costs)
        assert controller.choose(SITUATION, START) == choice
        assert not controller.is_control()


@pytest.mark.parametrize(
    ("leading", "chosen", "num_draft_tokens"),
    [(COPY, Choice(COPY), 6.0), ("draft", Choice("draft", 2), 2.0), ("", OFF_CHOICE, 0.0)],
)
def test_report_has_the_draft_tokens_of_the_choice(leading, chosen, num_draft_tokens):
    """For copy drafters, whose drafts have any length, it has their mean; 0 would look like off."""
    lead = Lead("draft", (2,))
    traits = RequestTraits("code", "greedy", (lead,), True, Choice("draft", 2))
    controller = Controller(ControlSettings("auto"), draw=lambda: 0.5)
    fill(controller.costs)
    for size in (4, 8, 0) * 100:
        num_copied = size if leading == COPY else 0
        copied = DraftResult(COPY, num_copied, num_copied, num_copied)
        drafted = DraftResult("draft", 2, 2, 2 if leading == "draft" else 0)
        controller.learn_round(traits, None, [copied, drafted])

    assert controller.choose(traits, START) == chosen
    assert controller.report("code").num_draft_tokens == pytest.approx(num_draft_tokens, rel=0.01)


def test_article_switches_by_accepted_of_drafted():
    """The mode `article` speculates above 0.6 accepted ÷ drafted, and is off below 0.5.

    Between them nothing changes; before any measurement it speculates.
    """
    controller = Controller(ControlSettings("article"))
    rng = random.Random(1)

    def draft(alpha, num_rounds=2000):
        for _ in range(num_rounds):
            accepted = int(rng.random() < alpha) and 1 + int(rng.random() < alpha)
            controller.learn_round(SITUATION, None, [DraftResult("draft", 2, 2, accepted)])
        return controller.choose(SITUATION, START)

    assert controller.choose(SITUATION, START) == Choice("draft", 2)
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


@pytest.mark.parametrize(("control_share", "revisited"), [(0.01, "poor"), (0.0, "none")])
def test_least_known_choice_is_tried_again_if_it_could_pay_off(control_share, revisited):
    """A drafter that looked worthless is tried again, unless it could never pay off.

    One that costs more than it gains even if all its draft tokens are accepted is not tried.
    Without a control group these trials go to off, of which nothing else tells the pace.
    """
    leads = Lead("draft", (2,)), Lead("poor", (2,)), Lead("slow", (2,))
    traits = RequestTraits("code", "greedy", leads, False, Choice("draft", 2))
    settings = ControlSettings("auto", control_share=control_share)
    controller = Controller(settings, draw=lambda: 0.5)
    fill(controller.costs)
    for number in range(600):
        lead = ("draft", "poor", "slow")[number % 3]
        sample = Sample(
            num_inflight=1,
            num_looping=1,
            num_rows=3,
            num_context=100,
            is_streamed=False,
            target_s=0.011,
            lead=lead,
            num_drafted=2,
            draft_s=0.1 if lead == "slow" else 0.002,
        )
        offer = DraftResult(lead, 2, 2, 0 if lead == "poor" else 2)
        if lead != "poor" or number < 300:
            controller.learn_round(traits, sample, [offer])

    assert controller.choose(traits, START) == Choice("draft", 2)
    tried = []
    for _ in range(4 * REVISIT_EVERY * TRIAL_EVERY):
        trial = controller.trial(traits, START)
        if trial is not None:
            controller.trial_is_over()
            tried.append(trial.lead)
    assert {*tried} == {revisited}
    assert len(tried) == 4


def test_under_load_a_drafter_is_used_only_after_it_was_timed_there():
    """With many requests in flight, times of other loads do not count.

    One request at a time makes a trial, until enough rounds at this load have been timed.
    """
    controller = Controller(ControlSettings("auto", control_share=0.0), draw=lambda: 0.5)
    loaded = RequestProgress(num_inflight=8, num_context=100, num_left=200, is_start=True)
    fill(controller.costs)
    for _ in range(200):
        controller.learn_round(SITUATION, None, [DraftResult("draft", 4, 4, 4)])
        controller.learn_round(SITUATION, Sample(8, 0, 8, 100, True, 0.0115), ())
    assert controller.choose(SITUATION, START) == Choice("draft", 4)
    assert controller.choose(SITUATION, loaded) == OFF_CHOICE

    tried = {controller.trial(SITUATION, loaded) for _ in range(2 * TRIAL_EVERY)} - {None}
    assert tried == {Choice("draft", 4)}
    controller.trial_is_over()
    timed = Sample(8, 1, 12, 100, False, 0.0125, "draft", 4, 1, 0.001)
    for _ in range(MIN_TIMED_OF_MANY):
        assert controller.choose(SITUATION, loaded) == OFF_CHOICE
        controller.learn_round(SITUATION, timed, ())
    assert controller.choose(SITUATION, loaded) == Choice("draft", 4)


def test_under_load_requests_that_must_draft_get_the_default():
    """These requests ask for a number of draft tokens, and their drafter was never timed."""
    controller = Controller(ControlSettings("auto", control_share=0.0), draw=lambda: 0.5)
    fill(controller.costs, load=8)
    asked = replace(SITUATION, leads=(Lead("other", (2,)),), may_be_off=False)
    asked = replace(asked, default=Choice("other", 2))

    loaded = RequestProgress(num_inflight=8, num_context=100, num_left=200, is_start=True)
    assert controller.choose(asked, loaded) == Choice("other", 2)
