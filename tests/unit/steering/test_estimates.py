"""The one estimator: decayed means with priors, and linear fits from them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from specdec.steering.estimates import (
    DECAY_ROUNDS,
    HALF_LIFE_S,
    PRIOR_ROUNDS,
    Mean,
    Means,
    solve,
)

NOW_S = 1e9


def test_newer_rounds_weigh_more():
    """After 3 × DECAY_ROUNDS rounds with another value the mean is near that value."""
    mean = Mean()
    for value, num_rounds in ((1.0, 5000), (0.0, 3 * DECAY_ROUNDS)):
        for _ in range(num_rounds):
            mean.add(value, NOW_S)

    assert mean.value == pytest.approx(0.05, abs=0.01)
    assert mean.weight == pytest.approx(DECAY_ROUNDS, rel=0.01)


def test_a_mean_fades_without_new_rounds():
    """Half of its weight is left after HALF_LIFE_S; its value stays."""
    mean = Mean()
    mean.add(0.5, NOW_S, num_rounds=40)

    assert mean.weight_at(NOW_S + HALF_LIFE_S) == pytest.approx(20)
    assert mean.value == 0.5


def test_rounds_added_together_count_like_rounds_one_by_one():
    """The difference is below 1 %."""
    together, one_by_one = Mean(), Mean()
    for number in range(100):
        together.add(float(number % 2), NOW_S, num_rounds=4)
        for _ in range(4):
            one_by_one.add(float(number % 2), NOW_S)

    assert together.weight == pytest.approx(one_by_one.weight, rel=0.01)
    assert together.value == pytest.approx(one_by_one.value, rel=0.01)


def test_each_level_is_shrunk_towards_the_one_before_it():
    """A prior counts as PRIOR_ROUNDS rounds; a level without rounds changes nothing."""
    means = Means()
    means.add(("all",), 1.0, NOW_S, num_rounds=PRIOR_ROUNDS)

    assert means.shrunk([("none",)], 0.25, NOW_S) == (0.25, 0.0)
    value, weight = means.shrunk([("all",), ("none",)], 0.0, NOW_S)
    assert (value, weight) == (pytest.approx(0.5), 0.0)


def test_fit_finds_the_costs_of_correlated_features():
    """No coefficient is negative, whatever the noise; a feature never seen keeps its prior."""
    rng, products = random.Random(1), np.zeros((4, 4))
    for _ in range(2000):
        rows = rng.randint(1, 8)
        seconds = (0.010 + 0.002 * rows) * rng.lognormvariate(0, 0.1)
        values = np.array([seconds, 1.0, rows, 0.0])
        products += np.outer(values, values)

    found = solve(products, np.array([0.0, 0.0, 0.5]), num_loose=1)

    assert found == pytest.approx([0.010, 0.002, 0.5], rel=0.1)


def test_fit_without_negative_coefficients_leaves_out_the_features_that_would_need_them():
    """The other coefficients are fitted again without them."""
    products = np.zeros((3, 3))
    for rows in range(1, 9):
        values = np.array([0.020 - 0.001 * rows, 1.0, rows])
        products += 100 * np.outer(values, values)

    found = solve(products, np.zeros(2), num_loose=1)
    signed = solve(products, np.zeros(2), num_loose=1, is_signed=True)

    assert found == pytest.approx([0.0155, 0.0], rel=0.02)
    assert signed == pytest.approx([0.020, -0.001], rel=0.1)


def test_state_of_means_survives():
    """Numbers and matrices come back equal; anything that is no mean is refused."""
    numbers, matrices = Means(), Means()
    for value in (0.0, 1.0):
        numbers.add(("a", 1), value, NOW_S)
        matrices.add(("b", 2, 3), value * np.ones((2, 2)), NOW_S)

    for means, size in ((numbers, 0), (matrices, 2)):
        again = Means.of_state(means.state(), tuple, size)
        assert again.state() == means.state()
    for damaged in (
        [["a"]],
        [[["a"], 1.0, [1.0, 2.0], NOW_S]],
        [[["a"], float("nan"), 1.0, NOW_S]],
    ):
        with pytest.raises((ValueError, TypeError)):
            Means.of_state(damaged, tuple)
