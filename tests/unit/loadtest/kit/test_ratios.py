"""Tests that 95 % intervals contain the true value that often, even from few passes."""

from __future__ import annotations

import random
import statistics

import pytest

from specdec.loadtest.kit.ratios import resampled

NUM_EXPERIMENTS = 200


@pytest.mark.parametrize("num_passes", [6, 24])
def test_interval_contains_the_true_value(num_passes):
    """Plain percentiles of six passes would contain it in only 85 of 100 experiments."""
    noise = random.Random(num_passes)
    num_held = 0
    for _ in range(NUM_EXPERIMENTS):
        found = {str(number): noise.gauss(1.0, 0.06) for number in range(num_passes)}
        ratio = resampled(
            sorted(found), lambda drawn, found=found: statistics.fmean(found[i] for i in drawn)
        )
        num_held += ratio.low <= 1.0 <= ratio.high

    assert 0.9 <= num_held / NUM_EXPERIMENTS <= 0.99
