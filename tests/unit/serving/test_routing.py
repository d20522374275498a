"""Tasks: the label of a request, its configured drafter, and measurements that overrule it."""

from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest

from specdec.errors import ConfigurationError
from specdec.serving.task_labels import MAX_TASKS, OTHER_TASK, RequestTask, TaskLabeler
from specdec.steering.acceptance_estimates import DraftResult
from specdec.steering.choices import OFF_CHOICE, Candidate, Choice, EstimatedDrafter, RequestTraits
from specdec.steering.controller import ROUTED_ROUNDS, TRIAL_EVERY, Controller
from specdec.steering.predictions import RequestProgress
from specdec.steering.settings import ControlSettings
from specdec.steering.steps import Step
from tests.unit.orchestrator_settings import settings_of
from tests.unit.serving.request_arrays import parse

DRAFTS = {"tensorrt_llm_draft_model_name": "draft_code,draft_chat"}
PROMPT = np.zeros(1, np.int32)
SQL = "Write an SQL query that lists the customers who ordered nothing in the last year."
ALONE = RequestProgress(num_inflight=1, num_context=100, num_left=200, is_start=True)
CANDIDATES = (Candidate("draft_code", (1, 2, 3, 4)), Candidate("draft_chat", (1, 2, 3, 4)))


def labeler(**settings):
    """Return a labeler that needs no tokenizer, because all requests are texts."""
    return TaskLabeler(settings_of(**DRAFTS, **settings).tasks, None)


def task(labeler, text="?", **fields):
    """Return a request's label and its configured drafter."""
    return labeler.task(parse(text_input=text, **fields), PROMPT)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("code=draft_cobol", "code=draft_cobol"),
        ("draft_code", "task=drafter"),
        ("code=", "task=drafter"),
        ("code=auto", "lookup, draft_code, draft_chat, suffix"),
        ("=draft_code", "task=drafter"),
        ("code=auto", "code=auto"),
        ("code=prediction", "code=prediction"),
    ],
)
def test_routes_to_unknown_drafters_are_refused_at_load(value, message):
    """The error gives the entry, the right form, or the drafters that exist."""
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        settings_of(**DRAFTS, task_drafters=f"sql=draft_code, {value}")


def test_task_gets_its_drafter_if_named_or_told_from_the_text():
    """An entry for the label `auto:sql` comes before one for `sql`; other tasks have no drafter."""
    to_code = labeler(task_drafters="sql=draft_code, mail = draft_chat")
    assert task(to_code, task="sql") == RequestTask("sql", "draft_code")
    assert task(to_code, SQL) == RequestTask("auto:sql", "draft_code")
    assert task(to_code, task="mail") == RequestTask("mail", "draft_chat")
    assert task(to_code, task="chat") == RequestTask("chat", None)

    apart = labeler(task_drafters="sql=draft_code,auto:sql=draft_chat")
    assert task(apart, SQL).drafter == "draft_chat"


def test_number_of_labels_is_limited_and_configured_ones_are_kept():
    """This holds for any tasks and tenants that clients invent, in any order."""
    routed = labeler(task_drafters="sql=draft_code", acceptance_by_tenant=True)

    hostile = {
        task(routed, task=f"t{number}", tenant=f"mallory{number % 7}").label
        for number in range(1000)
    }

    assert len(hostile | {"sql"}) <= MAX_TASKS + 1
    assert OTHER_TASK in hostile
    assert task(routed, task="sql") == RequestTask("sql", "draft_code")


def test_no_tenant_can_use_the_label_of_another():
    """Slashes in tenants and tasks are escaped; without the setting, tenants share labels."""
    apart = labeler(acceptance_by_tenant=True)
    names = ("a", "a/b", "b/c", "a/b/c", "c", None)
    asked = [
        {"tenant": tenant, "task": name}
        for tenant, name in itertools.product(names, names)
        if name is not None
    ]
    found = [task(apart, **each).label for each in asked if each["tenant"] != "b/c"]
    assert len(set(found)) == len(found)
    assert task(apart, task="sql", tenant="acme").label == "acme/sql"

    shared = labeler()
    assert task(shared, task="sql", tenant="acme") == task(shared, task="sql", tenant="globex")


def report_rounds(controller, traits, drafter, alpha, num_rounds):
    """Report rounds with 4 draft tokens of 1 ms each, and plain steps of 10 ms.

    `alpha` is the chance that a draft token is accepted if all draft tokens before it were.
    """
    for number in range(num_rounds):
        draws = [(number * 7919 + position * 104729) % 1000 / 1000 for position in range(4)]
        accepted = next((position for position in range(4) if draws[position] >= alpha), 4)
        controller.learn_step(Step(Choice(drafter, 4), 1, 1, 5, 100), 0.0145)
        controller.learn_drafts(traits, [DraftResult(EstimatedDrafter(drafter), 4, 4, accepted)])
        controller.learn_step(Step(OFF_CHOICE, 1, 0, 1, 100), 0.0100)


def settled(controller, traits):
    """Return the drafter that is chosen after eight decisions."""
    for _ in range(8):
        chosen = controller.choose(traits, ALONE)
    return chosen.drafter


@pytest.fixture
def controller():
    """Return a controller that has learned, from another task, that draft_chat does better."""
    found = Controller(ControlSettings(control_share=0.0), clock=lambda: 1e6, draw=lambda: 0.99)
    other = RequestTraits(
        "mail", "greedy", CANDIDATES, max_copy_tokens=0, default=Choice("draft_chat", 2)
    )
    report_rounds(found, other, "draft_chat", 0.8, 400)
    report_rounds(found, other, "draft_code", 0.5, 200)
    return found


def routed(label="sql"):
    """Return the traits of a request whose task is configured to use draft_code."""
    return RequestTraits(
        label,
        "greedy",
        CANDIDATES,
        max_copy_tokens=0,
        default=Choice("draft_code", 2),
        is_routed=True,
    )


def test_routed_task_starts_with_its_configured_drafter(controller):
    """A task without a route starts with the drafter that did well for other tasks."""
    assert settled(controller, routed()) == "draft_code"
    free = dataclasses.replace(routed("free"), is_routed=False)
    assert settled(controller, free) == "draft_chat"


def test_routed_task_stays_with_a_drafter_that_is_good_at_it(controller):
    """It stays although the other drafter is better for other tasks."""
    report_rounds(controller, routed(), "draft_code", 0.85, 4 * ROUTED_ROUNDS)
    assert settled(controller, routed()) == "draft_code"


def test_routed_task_leaves_a_hopeless_drafter_for_good(controller):
    """It leaves after ROUTED_ROUNDS rounds, no sooner and without a trial.

    Later at most one trial uses that drafter again.
    """
    report_rounds(controller, routed(), "draft_code", 0.0, ROUTED_ROUNDS - 2)
    assert settled(controller, routed()) == "draft_code"
    report_rounds(controller, routed(), "draft_code", 0.0, 4)
    assert settled(controller, routed()) == "draft_chat"
    trials = [controller.begin_trial(routed(), ALONE) for _ in range(4 * TRIAL_EVERY)]
    assert settled(controller, routed()) == "draft_chat"
    assert len([each for each in trials if each is not None and each.drafter == "draft_code"]) <= 1


def test_tenants_with_opposite_acceptance_get_their_own_choices(controller):
    """With the labels that the server gives by tenant, each has its own choice and its own α̂."""
    apart = labeler(acceptance_by_tenant=True)
    good, bad = (
        dataclasses.replace(routed(task(apart, task="sql", tenant=tenant).label), is_routed=False)
        for tenant in ("acme", "globex")
    )
    for traits, alphas in ((good, (0.9, 0.1)), (bad, (0.1, 0.9))):
        for drafter, alpha in zip(("draft_code", "draft_chat"), alphas, strict=True):
            report_rounds(controller, traits, drafter, alpha, 200)

    assert [settled(controller, each) for each in (good, bad)] == ["draft_code", "draft_chat"]
    assert dict(controller.take_report("acme/sql").alphas)["draft_code"] > 0.8
    assert dict(controller.take_report("globex/sql").alphas)["draft_code"] < 0.2
