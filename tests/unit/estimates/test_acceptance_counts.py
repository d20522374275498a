"""Tests of acceptance estimates from rounds: their censoring, their uncertainty, α by position."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from specdec.estimates.acceptance import AcceptanceCounts, acceptance_by_position
from specdec.estimates.beta import beta_below, beta_quantile
from specdec.estimates.formulas import acceptance_rate

SHAPES = st.floats(0.5, 20_000)


def draw_num_accepted(alpha, num_draft_tokens, order):
    """Return how many of a round's draft tokens are accepted, drawn with chance α for each."""
    for num_accepted in range(num_draft_tokens):
        if order.random() >= alpha:
            return num_accepted
    return num_draft_tokens


def round_acceptance(num_accepted, num_draft_tokens):
    """Return the counts of one round: the token after the accepted ones was compared too."""
    return AcceptanceCounts(num_accepted, min(num_accepted + 1, num_draft_tokens))


def together(parts):
    """Return the sum of several rounds' counts."""
    return sum(parts, AcceptanceCounts())


def test_tokens_after_the_first_rejected_one_are_not_compared():
    """With k = 4 and 0, 2 and 4 accepted tokens, 1, 3 and 4 draft tokens were compared."""
    total = together(round_acceptance(num_accepted, 4) for num_accepted in (0, 2, 4))

    assert (total.num_accepted, total.num_compared) == (6, 8)
    assert total.alpha == 0.75
    assert total.standard_error == pytest.approx((0.75 * 0.25 / 8) ** 0.5)


def test_without_rounds_there_is_no_estimate():
    """α̂ is None, not 0, and its interval spans nearly everything from 0 to 1."""
    low, high = AcceptanceCounts().interval()

    assert AcceptanceCounts().alpha is None
    assert AcceptanceCounts().standard_error is None
    assert low < 0.01
    assert high > 0.99


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_estimate_does_not_depend_on_the_draft_length(alpha, k):
    """20,000 rounds at any k recover α, while accepted ÷ drafted falls as k grows."""
    order = random.Random(k)
    total = together(round_acceptance(draw_num_accepted(alpha, k, order), k) for _ in range(20_000))

    assert total.alpha == pytest.approx(alpha, abs=4 * total.standard_error)
    assert total.num_accepted / (20_000 * k) == pytest.approx(acceptance_rate(alpha, k), abs=0.015)


@pytest.mark.parametrize("alpha", [0.1, 0.6, 0.9])
def test_95_percent_interval_contains_alpha_in_95_percent_of_cases(alpha):
    """Over 1,000 repetitions of 30 rounds, intervals miss α in 2.5 % to 7.5 % of cases."""
    order = random.Random(7)
    missed = 0
    for _ in range(1000):
        low, high = together(
            round_acceptance(draw_num_accepted(alpha, 4, order), 4) for _ in range(30)
        ).interval()
        missed += not low <= alpha <= high

    assert missed / 1000 == pytest.approx(0.05, abs=0.025)


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0, 1)), min_size=1, max_size=40))
def test_positions_add_up_to_the_whole(rounds):
    """The sum over positions is the estimate over all rounds, whatever their draft lengths.

    No position is compared more often than the one before it was accepted.
    """
    histograms = {}
    total = AcceptanceCounts()
    for k, share in rounds:
        num_accepted = int(share * k)
        histograms.setdefault(k, [0] * (k + 1))[num_accepted] += 1
        total += round_acceptance(num_accepted, k)

    positions = acceptance_by_position(histograms)

    assert together(positions) == total
    assert positions[0].num_compared == len(rounds)
    for before, after in itertools.pairwise(positions):
        assert after.num_compared <= before.num_accepted


def test_without_drafts_there_are_no_positions():
    """A request that never had a draft has no estimate for any position."""
    assert acceptance_by_position({}) == ()


@given(st.floats(0.001, 0.999), SHAPES, SHAPES)
def test_beta_is_that_of_scipy(probability, shape_a, shape_b):
    """Distribution and quantile agree with SciPy's for any shapes."""
    x = beta_quantile(probability, shape_a, shape_b)

    assert x == pytest.approx(beta.ppf(probability, shape_a, shape_b), rel=1e-6, abs=1e-12)
    assert beta_below(x, shape_a, shape_b) == pytest.approx(beta.cdf(x, shape_a, shape_b), rel=1e-6)
