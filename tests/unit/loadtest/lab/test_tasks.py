"""Tests of `specdec bench tasks`, the bench of the ten tasks of a guide.

They cover the guide's ranges in our terms, the outcomes, the tables and the picture.
"""

from __future__ import annotations

import pytest

from specdec.builder.distill import prompts
from specdec.loadtest.kit.answers import Measurement
from specdec.loadtest.kit.guide import TASKS
from specdec.loadtest.kit.prompts import held_out_prompts
from specdec.loadtest.lab.speed.task_picture import plot_tasks
from specdec.loadtest.lab.speed.task_tables import outcome, outcomes, tables

STATISTICS = {
    "round_times": {"num_rounds": 3, "total_s": 0.9},
    "acceptance_histogram_by_draft_length": {"2": [1, 1, 1]},
    "num_spec_steps": 3,
    "num_draft_tokens": 6,
    "num_accepted_draft_tokens": 3,
}


def measured(task: str, arm: str) -> Measurement:
    """Return the measurement of an answer of 7 tokens, the first of them after 0.5 s.

    The others take 1.8 s without speculation, and half of that with it.
    """
    is_off = arm == "off"
    last_s = 2.3 if is_off else 1.4
    return Measurement(f"{task}-1", task, arm, 7, 1, 0.5, last_s, None if is_off else STATISTICS)


FOUND = [measured(task, arm) for task in ("sql", "mathematics") for arm in ("off", "draft")]


def test_acceptance_of_the_guide_is_converted_to_our_terms():
    """The guide gives accepted ÷ drafted at four draft tokens; it is converted to α and to τ."""
    assert str(TASKS["sql"].conditional_acceptance) == "0.91–0.95"
    assert str(TASKS["sql"].mean_acceptance_length) == "4.20–4.52"


def test_tasks_are_those_of_our_prompts():
    """The guide's ten tasks are those of our prompts; the bench asks held-out prompts of each."""
    assert TASKS.keys() == {task for task, _ in prompts.shipped()}
    held = {text for _, text in prompts.held_out(prompts.PromptSettings())}

    found = held_out_prompts(2)

    assert [prompt.category for prompt in found] == [task for task in TASKS for _ in range(2)]
    assert {prompt.turns[0] for prompt in found} <= held
    assert len({prompt.prompt_id for prompt in found}) == len(found)
    assert len(held_out_prompts(None)) == len(held)


def test_outcome_has_the_acceptance_of_drafted_and_of_compared_tokens():
    """Five of the six draft tokens were compared with the target, and three accepted."""
    own = outcome(FOUND, "draft", "sql")

    assert own.counts.acceptance_rate == 0.5
    assert own.counts.conditional_acceptance == 3 / 5
    assert own.counts.tau == 2.0
    assert own.on_over_off.middle == pytest.approx(2.3 / 1.4)


def test_tables_have_the_guide_and_every_drafter():
    """There is a row for each task and one for all; the guide's range precedes our figures."""
    known = outcomes(FOUND, ["draft"])

    lines = tables(known).splitlines()

    assert [line.split("|")[1].strip() for line in lines[:5]] == [
        "accepted ÷ drafted",
        "--------------------",
        "sql",
        "mathematics",
        "all",
    ]
    assert "| sql                | 0.80–0.88 | 0.500 |" in lines
    assert "1.64 (1.64–1.64)" in lines[-1]


def test_picture_can_be_drawn(tmp_path):
    """This works even for a drafter that never had a proposal."""
    nothing = {"num_spec_steps": 0, "num_draft_tokens": 0, "num_accepted_draft_tokens": 0}
    silent = STATISTICS | nothing | {"acceptance_histogram_by_draft_length": {}}
    idle = [
        Measurement("sql-1", "sql", "lookup", 7, 1, 0.5, 2.3, silent),
        Measurement("mathematics-1", "mathematics", "lookup", 7, 1, 0.5, 2.3, silent),
    ]

    plot_tasks(outcomes([*FOUND, *idle], ["draft", "lookup"]), "title", tmp_path / "tasks.png")

    assert (tmp_path / "tasks.png").read_bytes().startswith(b"\x89PNG")
