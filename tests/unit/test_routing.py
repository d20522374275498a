"""Tasks: which label a request gets, whom it is sent to, and that measurement has the last word."""

from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest

from specdec.control.acceptance_book import Offer
from specdec.control.choices import Choice, Lead, Situation
from specdec.control.controller import ROUTED_ROUNDS, Controller
from specdec.control.costs import Sample
from specdec.control.outlook import Place
from specdec.control.settings import ControlSettings
from specdec.control.trials import TRIAL_EVERY
from specdec.errors import ConfigurationError
from specdec.serving.metrics import MAX_TASKS, OTHER_TASK, TaskLabels
from specdec.serving.settings import OrchestratorSettings
from specdec.serving.task_labels import Task, TaskLabeler
from tests.unit.request_arrays import parse

DRAFTS = {"tokenizer_dir": "", "tensorrt_llm_draft_model_name": "draft_code,draft_chat"}
PROMPT = np.zeros(1, np.int32)
SQL = "Write an SQL query that lists the customers who ordered nothing in the last year."
ALONE = Place(num_inflight=1, num_context=100, num_left=200, is_start=True)
LEADS = (Lead("draft_code", (1, 2, 3, 4)), Lead("draft_chat", (1, 2, 3, 4)))


def labeler(**settings):
    """Return a labeler, and the labels that it gives."""
    labels = TaskLabels()
    return TaskLabeler(OrchestratorSettings(**DRAFTS, **settings), None, labels), labels


def task(labeler, text="?", **fields):
    """Return what a request's task means for it."""
    return labeler.task(parse(text_input=text, **fields), PROMPT)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("code=draft_cobol", "code=draft_cobol"),
        ("draft_code", "task=drafter"),
        ("code=", "lookup, draft_code, draft_chat, suffix"),
        ("=draft_code", "task=drafter"),
        ("code=auto", "code=auto"),
        ("code=prediction", "code=prediction"),
    ],
)
def test_routes_to_nobody_are_refused_at_load(value, said):
    """With the entry, its form, and who there is."""
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        OrchestratorSettings(**DRAFTS, task_drafters=f"sql=draft_code, {value}")


def test_task_goes_to_its_drafter_named_or_told_by_its_text():
    """An entry for the told label goes before; other tasks go nowhere in particular."""
    to_code, _ = labeler(task_drafters="sql=draft_code, mail = draft_chat")
    assert task(to_code, task="sql") == Task("sql", "draft_code")
    assert task(to_code, SQL) == Task("auto:sql", "draft_code")
    assert task(to_code, task="mail") == Task("mail", "draft_chat")
    assert task(to_code, task="chat") == Task("chat", None)

    apart, _ = labeler(task_drafters="sql=draft_code,auto:sql=draft_chat")
    assert task(apart, SQL).drafter == "draft_chat"


def test_labels_are_bounded_and_those_that_the_operator_names_are_kept():
    """Whatever clients and tenants invent, in whatever order."""
    routed, _ = labeler(task_drafters="sql=draft_code", acceptance_by_tenant=True)

    hostile = {
        task(routed, task=f"t{number}", tenant=f"mallory{number % 7}").label
        for number in range(1000)
    }

    assert len(hostile | {"sql"}) <= MAX_TASKS + 1
    assert OTHER_TASK in hostile
    assert task(routed, task="sql") == Task("sql", "draft_code")


def test_no_tenant_can_name_the_label_of_another():
    """Slashes in names and tasks are written otherwise; without the setting tenants share."""
    apart, _ = labeler(acceptance_by_tenant=True)
    names = ("a", "a/b", "b/c", "a/b/c", "c", None)
    asked = [
        {"tenant": tenant, "task": name}
        for tenant, name in itertools.product(names, names)
        if name is not None
    ]
    found = [task(apart, **each).label for each in asked if each["tenant"] != "b/c"]
    assert len(set(found)) == len(found)
    assert task(apart, task="sql", tenant="acme").label == "acme/sql"

    shared, _ = labeler()
    assert task(shared, task="sql", tenant="acme") == task(shared, task="sql", tenant="globex")


def teach(controller, situation, drafter, alpha, num_rounds):
    """Rounds of 4 guesses at 1 ms each beside passes of 10 ms, and steps of the target alone."""
    for number in range(num_rounds):
        luck = [(number * 7919 + place * 104729) % 1000 / 1000 for place in range(4)]
        accepted = next((place for place in range(4) if luck[place] >= alpha), 4)
        sample = Sample(1, 1, 5, 100, False, 0.0105, drafter, 4, 1, 0.004)
        controller.learn_round(situation, sample, [Offer(drafter, 4, 4, accepted)])
        controller.learn_round(situation, Sample(1, 0, 1, 100, True, 0.0100), [])


def settled(controller, situation):
    """What is chosen in the end, a guess more or less left out."""
    for _ in range(8):
        chosen = controller.choose(situation, ALONE)
    return chosen.lead


@pytest.fixture
def controller():
    """A controller at which another task's requests did well with draft_chat alone."""
    found = Controller(ControlSettings(control_share=0.0), clock=lambda: 1e6, draw=lambda: 0.99)
    other = Situation("mail", "greedy", LEADS, False, Choice("draft_chat", 2))
    teach(found, other, "draft_chat", 0.8, 400)
    teach(found, other, "draft_code", 0.5, 200)
    return found


def routed(label="sql"):
    """A task that goes to draft_code."""
    return Situation(label, "greedy", LEADS, False, Choice("draft_code", 2), is_routed=True)


def test_routed_task_starts_with_its_drafter_whatever_others_say(controller):
    """A task that is not routed starts with what did well elsewhere."""
    assert settled(controller, routed()) == "draft_code"
    free = dataclasses.replace(routed("free"), is_routed=False)
    assert settled(controller, free) == "draft_chat"


def test_routed_task_stays_with_a_drafter_that_is_good_at_it(controller):
    """Though the other is better at all else."""
    teach(controller, routed(), "draft_code", 0.85, 4 * ROUTED_ROUNDS)
    assert settled(controller, routed()) == "draft_code"


def test_routed_task_leaves_a_hopeless_drafter_for_good(controller):
    """After ROUTED_ROUNDS rounds, without a trial; and no sooner."""
    teach(controller, routed(), "draft_code", 0.0, ROUTED_ROUNDS - 2)
    assert settled(controller, routed()) == "draft_code"
    teach(controller, routed(), "draft_code", 0.0, 4)
    assert settled(controller, routed()) == "draft_chat"
    trials = [controller.trial(routed(), ALONE) for _ in range(4 * TRIAL_EVERY)]
    assert settled(controller, routed()) == "draft_chat"
    assert len([each for each in trials if each is not None and each.lead == "draft_code"]) <= 1


def test_tenants_with_opposite_acceptance_are_served_apart(controller):
    """By the labels of production: each its own choice and its own α̂."""
    apart, _ = labeler(acceptance_by_tenant=True)
    good, bad = (
        dataclasses.replace(routed(task(apart, task="sql", tenant=tenant).label), is_routed=False)
        for tenant in ("acme", "globex")
    )
    for situation, alphas in ((good, (0.9, 0.1)), (bad, (0.1, 0.9))):
        for drafter, alpha in zip(("draft_code", "draft_chat"), alphas, strict=True):
            teach(controller, situation, drafter, alpha, 200)

    assert [settled(controller, each) for each in (good, bad)] == ["draft_code", "draft_chat"]
    assert dict(controller.report("acme/sql").alphas)["draft_code"] > 0.8
    assert dict(controller.report("globex/sql").alphas)["draft_code"] < 0.2
