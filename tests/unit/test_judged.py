"""α from rounds: the censored estimate, its uncertainty, and the first guess against later ones."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from specdec.control.beta import beta_below, beta_quantile
from specdec.control.expectation import acceptance_rate
from specdec.control.judged import Acceptance, acceptance_by_position, round_acceptance

SHAPES = st.floats(0.5, 20_000)


def guess(alpha, num_draft_tokens, order):
    """Draw how many guesses of a round are kept."""
    for kept in range(num_draft_tokens):
        if order.random() >= alpha:
            return kept
    return num_draft_tokens


def together(parts):
    """Sum, as a task's rounds are summed."""
    return sum(parts, Acceptance())


def test_guesses_behind_a_wrong_one_are_not_judged():
    """Of four guesses that keep 0, 2 and 4, one, three and four were compared."""
    total = together(round_acceptance(kept, 4) for kept in (0, 2, 4))

    assert (total.num_accepted, total.num_judged) == (6, 8)
    assert total.alpha == 0.75
    assert total.standard_error == pytest.approx((0.75 * 0.25 / 8) ** 0.5)


def test_nothing_judged_is_no_estimate():
    """None, not 0: and the interval says that anything is possible."""
    low, high = Acceptance().interval()

    assert Acceptance().alpha is None
    assert Acceptance().standard_error is None
    assert low < 0.01
    assert high > 0.99


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_estimate_does_not_depend_on_the_number_of_guesses(alpha, k):
    """20,000 rounds at any k give α back, where accepted ÷ drafted falls with k."""
    order = random.Random(k)
    total = together(round_acceptance(guess(alpha, k, order), k) for _ in range(20_000))

    assert total.alpha == pytest.approx(alpha, abs=4 * total.standard_error)
    assert total.num_accepted / (20_000 * k) == pytest.approx(acceptance_rate(alpha, k), abs=0.015)


@pytest.mark.parametrize("alpha", [0.1, 0.6, 0.9])
def test_interval_holds_the_truth_as_often_as_it_says(alpha):
    """95 % intervals over 30 rounds miss in about 5 % of 1,000 repetitions."""
    order = random.Random(7)
    missed = 0
    for _ in range(1000):
        low, high = together(
            round_acceptance(guess(alpha, 4, order), 4) for _ in range(30)
        ).interval()
        missed += not low <= alpha <= high

    assert missed / 1000 == pytest.approx(0.05, abs=0.025)


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0, 1)), min_size=1, max_size=40))
def test_positions_add_up_to_the_whole(rounds):
    """However lengths mix, the sum over positions is the estimate over all.

    And no position is judged more often than the one before it stood.
    """
    histograms = {}
    total = Acceptance()
    for k, share in rounds:
        kept = int(share * k)
        histograms.setdefault(k, [0] * (k + 1))[kept] += 1
        total += round_acceptance(kept, k)

    positions = acceptance_by_position(histograms)

    assert together(positions) == total
    assert positions[0].num_judged == len(rounds)
    for before, after in itertools.pairwise(positions):
        assert after.num_judged <= before.num_accepted


def test_positions_of_nothing():
    """A request that never drafted has none."""
    assert acceptance_by_position({}) == ()


@given(st.floats(0.001, 0.999), SHAPES, SHAPES)
def test_beta_is_that_of_scipy(probability, shape_a, shape_b):
    """Distribution and quantile, whatever the shapes."""
    x = beta_quantile(probability, shape_a, shape_b)

    assert x == pytest.approx(beta.ppf(probability, shape_a, shape_b), rel=1e-6, abs=1e-12)
    assert beta_below(x, shape_a, shape_b) == pytest.approx(beta.cdf(x, shape_a, shape_b), rel=1e-6)
