"""Tests of the figures and tables of one stream, and of lengthening prompts."""

import pytest

from specdec.loadtest.kit.answers import Measurement, after_first_response, rate_of, ratio_of
from specdec.loadtest.kit.arms import Arm
from specdec.loadtest.kit.prompts import TokenPrompt, lengthened
from specdec.loadtest.kit.speed_tables import acceptance_table, acceptances


def measurement(prompt_id, arm, num_tokens=9, num_first=1, first_s=1.0, last_s=3.0):
    """Return the measurement of one answer.

    `num_first` of its tokens are in the first response. Times are seconds since the request.
    """
    return Measurement(prompt_id, "qa", arm, num_tokens, num_first, first_s, last_s, None)


def test_rates_of_whole_answers_and_after_the_first_response():
    """The rate after the first response leaves out its tokens and the time until it came."""
    found = [measurement("a", "off"), measurement("b", "off", num_tokens=15, num_first=3)]

    assert rate_of(found) == pytest.approx(24 / 6)
    assert rate_of(found, after_first_response) == pytest.approx((8 + 12) / 4)


def test_ratio_has_an_interval_over_prompts():
    """Equal ratios give an interval without width, unequal ones an interval around the middle."""
    same = [measurement(n, arm, last_s=3.0 if arm == "off" else 1.5) for n in "abc" for arm in "x"]
    same += [measurement(n, "off") for n in "abc"]
    assert str(ratio_of(same, "x", "off")) == "2.00 (2.00–2.00)"
    unequal = ratio_of([*same[1:], measurement("a", "x")], "x", "off")
    assert str(unequal) == "1.50 (1.00–2.00)"


def test_columns_have_the_same_order_for_every_arm():
    """Each figure is in its own column, even if the arms were asked in different orders."""
    found = [
        drafted(column, arm, num_accepted)
        for arm, columns in (("x", ("qa", "rag")), ("y", ("rag", "qa")))
        for column in columns
        for num_accepted in [3 if column == "qa" else 6]
    ]

    figures = acceptances(found, {"x": Arm("draft"), "y": Arm("draft")})

    assert [each.tau_by_column for each in figures] == [{"qa": 2.0, "rag": 3.0, "all": 2.5}] * 2
    header, _, *rows = acceptance_table(figures).splitlines()
    assert [cell.strip() for cell in header.split("|")[6:-1]] == ["τ, qa", "τ, rag", "τ, all"]
    assert all(row.split("|")[6:-1] == rows[0].split("|")[6:-1] for row in rows)


def drafted(column, arm, num_accepted):
    """Return the measurement of one answer of three rounds with two draft tokens each."""
    known = {
        "round_times": {"num_rounds": 3},
        "acceptance_histogram_by_draft_length": {},
        "num_spec_steps": 3,
        "num_draft_tokens": 6,
        "num_accepted_draft_tokens": num_accepted,
    }
    return Measurement(column, column, arm, 9, 1, 1.0, 3.0, known)


def test_acceptance_figures_by_hand():
    """The figures equal those computed by hand; a dash means that a figure is not defined.

    The answer has two rounds of 4 draft tokens, 4 and 1 of them accepted, and a round without any.
    """
    known = {
        "round_times": {"num_rounds": 2},
        "acceptance_histogram_by_draft_length": {"4": [0, 1, 0, 0, 1]},
        "num_spec_steps": 2,
        "num_draft_tokens": 8,
        "num_accepted_draft_tokens": 5,
    }
    assert acceptance_cells("draft", known) == ["2.67", "0.625", "0.833", "0.67", "3.50", "3.50"]
    # α̂ is defined for chains only.
    assert acceptance_cells("tree", known)[2] == "–"
    none = dict.fromkeys(("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens"), 0)
    nothing = known | none | {"acceptance_histogram_by_draft_length": {}}
    assert acceptance_cells("draft", nothing) == ["2.67", "–", "–", "0.00", "–", "–"]


def acceptance_cells(drafter, statistics):
    """Return the figures that the table shows for one answer of 8 tokens."""
    found = [Measurement("a", "qa", "x", 8, 1, 1.0, 3.0, statistics)]
    row = acceptance_table(acceptances(found, {"x": Arm(drafter)})).splitlines()[-1]
    return [cell.strip() for cell in row.strip("|").split("|")][1:]


def test_prompts_are_lengthened_in_front():
    """The question stays at the end; a prompt that is long enough does not change."""
    prompts = [TokenPrompt(name, "qa", ids) for name, ids in (("a", (1, 2)), ("b", (3, 4, 5)))]

    longer = lengthened(prompts, 6)

    assert [each.token_ids for each in longer] == [(5, 3, 4, 5, 1, 2), (2, 1, 2, 3, 4, 5)]
    assert lengthened(prompts, 2) == tuple(prompts)
