"""Tests of the tables of `specdec bench speed`, and of lengthening prompts that are too short."""

import pytest

from loadtest.bench.prompting import TokenPrompt, lengthened
from loadtest.bench.speed_tables import (
    Measurement,
    acceptance_table,
    acceptances,
    later,
    rate_of,
    ratio_of,
)


def measurement(prompt_id, arm, num_tokens=9, num_first=1, first_s=1.0, last_s=3.0):
    """Return the measurement of one answer.

    `num_first` of its tokens are in the first response. Times are seconds since the request.
    """
    return Measurement(prompt_id, "qa", arm, num_tokens, num_first, first_s, last_s, None)


def test_rates_of_whole_answers_and_after_the_first_response():
    """The rate after the first response leaves out its tokens and the time until it came."""
    found = [measurement("a", "off"), measurement("b", "off", num_tokens=15, num_first=3)]

    assert rate_of(found) == pytest.approx(24 / 6)
    assert rate_of(found, later) == pytest.approx((8 + 12) / 4)


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

    figures = acceptances(found, ["x", "y"])

    assert [each.tau_by_column for each in figures] == [{"qa": 2.0, "rag": 3.0, "all": 2.5}] * 2
    header, _, *rows = acceptance_table(figures).splitlines()
    assert [cell.strip() for cell in header.split("|")[5:-1]] == ["τ, qa", "τ, rag", "τ, all"]
    assert all(row.split("|")[5:-1] == rows[0].split("|")[5:-1] for row in rows)


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


def test_prompts_are_lengthened_in_front():
    """The question stays at the end; a prompt that is long enough does not change."""
    prompts = [TokenPrompt(name, "qa", ids) for name, ids in (("a", (1, 2)), ("b", (3, 4, 5)))]

    longer = lengthened(prompts, 6)

    assert [each.token_ids for each in longer] == [(5, 3, 4, 5, 1, 2), (2, 1, 2, 3, 4, 5)]
    assert lengthened(prompts, 2) == tuple(prompts)
