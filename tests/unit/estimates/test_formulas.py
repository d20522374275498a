"""Tests of the expected tokens and speed-ups against the papers' formulas and worked tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.estimates.formulas import (
    acceptance_rate,
    alpha_of_rate,
    alpha_of_tau,
    best_draft_length,
    draft_cost,
    draft_lengths,
    expected_tokens,
    expected_tokens_by_length,
    speed_up,
)

ALPHAS = st.floats(0, 1)
LENGTHS = st.integers(1, 16)
COSTS = st.floats(0, 2)

# By (α, k): E, and the speed-up at c = 0.05, 0.1 and 0.2.
TABLE = {
    (0.6, 3): (2.18, 1.89, 1.67, 1.36),
    (0.8, 3): (2.95, 2.57, 2.27, 1.85),
    (0.8, 5): (3.69, 2.95, 2.46, 1.84),
    (0.9, 8): (6.13, 4.38, 3.40, 2.36),
    (0.5, 8): (2.00, 1.43, 1.11, 0.77),
}

# By c: the best k and its speed-up at α = 0.5, 0.6, 0.7, 0.8 and 0.9.
BEST = {
    0.05: ((3, 1.63), (4, 1.92), (6, 2.35), (8, 3.09), (13, 4.67)),
    0.1: ((2, 1.46), (3, 1.67), (4, 1.98), (6, 2.47), (10, 3.43)),
    0.2: ((1, 1.25), (2, 1.40), (3, 1.58), (4, 1.87), (7, 2.37)),
}


@pytest.mark.parametrize(("alpha", "k"), TABLE)
def test_tokens_and_speed_up_of_known_cases(alpha, k):
    """E, and E / (ck + 1) at three draft costs, agree to two decimals."""
    own = [expected_tokens(alpha, k)]
    own += [speed_up(alpha, k, draft_cost(cost)) for cost in (0.05, 0.1, 0.2)]

    assert [round(value, 2) for value in own] == list(TABLE[alpha, k])


@pytest.mark.parametrize("cost", BEST)
def test_best_length_of_known_cases(cost):
    """The best k for five values of α is the one that Leviathan's rule gives."""
    own = [best_draft_length([alpha] * 32, draft_cost(cost)) for alpha in (0.5, 0.6, 0.7, 0.8, 0.9)]

    assert [(each.num_draft_tokens, round(each.speed_up, 2)) for each in own] == list(BEST[cost])


@pytest.mark.parametrize("cost", [0.3, 0.5, 1.0])
def test_no_draft_is_a_choice(cost):
    """At α = 0.3 a draft token that costs 0.3 steps cannot pay: k = 0, 1 token, no gain."""
    best = best_draft_length([0.3] * 8, draft_cost(cost))

    assert (best.num_draft_tokens, best.expected_tokens, best.speed_up) == (0, 1.0, 1.0)


def test_known_conversions_between_alpha_rate_and_tau():
    """α = 0.8 at k = 5 is 0.54 accepted ÷ drafted. At k = 4, 0.6 and 0.5 are α = 0.81 and 0.74."""
    assert acceptance_rate(0.8, 5) == pytest.approx(0.54, abs=0.005)
    assert alpha_of_rate(0.6, 4) == pytest.approx(0.81, abs=0.005)
    assert alpha_of_rate(0.5, 4) == pytest.approx(0.74, abs=0.005)
    assert alpha_of_rate(0.7, 1) == pytest.approx(0.7)
    assert alpha_of_tau(2.952, 3) == pytest.approx(0.8)


@given(st.lists(ALPHAS, max_size=16))
def test_expected_tokens_equal_the_sum_over_outcomes(alphas):
    """E is the sum of (a + 1) · P(a), where P(a) is the chance that exactly a are accepted."""
    expected, reached = 0.0, 1.0
    for kept, alpha in enumerate(alphas):
        expected += (kept + 1) * reached * (1 - alpha)
        reached *= alpha
    expected += (len(alphas) + 1) * reached

    assert expected_tokens_by_length(alphas)[-1] == pytest.approx(expected)


@given(ALPHAS, LENGTHS)
def test_closed_form_equals_the_sum_for_a_constant_alpha(alpha, k):
    """Closed form and sum over positions agree, also where α is 0, 1 or near them."""
    assert expected_tokens(alpha, k) == pytest.approx(expected_tokens_by_length([alpha] * k)[-1])


@given(st.floats(0.01, 1), LENGTHS)
def test_conversions_are_inverse_to_each_other(alpha, k):
    """α → τ → α and α → accepted ÷ drafted → α give α back, for α of at least 0.01."""
    assert alpha_of_tau(expected_tokens(alpha, k), k) == pytest.approx(alpha, rel=1e-6)
    assert alpha_of_rate(acceptance_rate(alpha, k), k) == pytest.approx(alpha, rel=1e-6)


@given(ALPHAS, LENGTHS)
def test_accepted_over_drafted_is_at_most_alpha(alpha, k):
    """Accepted ÷ drafted never exceeds α, and equals it at k = 1."""
    assert acceptance_rate(alpha, k) <= alpha + 1e-12
    assert acceptance_rate(alpha, 1) == pytest.approx(alpha)


@given(st.lists(ALPHAS, max_size=12), st.lists(st.floats(0.01, 10), min_size=13, max_size=13))
def test_best_is_no_worse_than_any_choice_nor_than_off(alphas, times):
    """For any table of round times, no other k and no plain step is faster."""
    best = best_draft_length(alphas, times.__getitem__)

    assert best.speed_up >= 1.0
    assert all(best.speed_up >= each.speed_up for each in draft_lengths(alphas, times.__getitem__))


@given(st.floats(0.01, 0.99), st.floats(0.01, 1))
def test_first_draft_token_pays_exactly_when_alpha_exceeds_its_cost(alpha, cost):
    """Leviathan's corollary 3.9: k = 1 gains if and only if α > c."""
    if abs(alpha - cost) > 1e-9:
        assert (speed_up(alpha, 1, draft_cost(cost)) > 1) == (alpha > cost)


@given(st.floats(0.01, 0.99), st.floats(0.01, 1), LENGTHS)
def test_next_draft_token_pays_by_its_rule(alpha, cost, k):
    """S(k + 1) > S(k) if and only if α^(k+1) (1 + ck) > c E(k)."""
    margin = alpha ** (k + 1) * (1 + cost * k) - cost * expected_tokens(alpha, k)
    if abs(margin) > 1e-9:
        gains = speed_up(alpha, k + 1, draft_cost(cost)) > speed_up(alpha, k, draft_cost(cost))
        assert gains == (margin > 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_tokens(1.2, 4), "α is a probability, from 0 to 1, not 1.2"),
        (lambda: expected_tokens_by_length([0.5, -0.1]), "from 0 to 1, not -0.1"),
        (lambda: alpha_of_tau(5.5, 4), "with 4 draft tokens a round it is from 1 to 5, not 5.5"),
        (lambda: alpha_of_rate(-0.2, 4), "accepted ÷ drafted is from 0 to 1, not -0.2"),
    ],
)
def test_impossible_values_are_refused(call, message):
    """The message names the limits and the value given."""
    with pytest.raises(ValueError, match=message):
        call()
