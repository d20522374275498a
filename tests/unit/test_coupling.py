"""Tests of the formulas of `specdec bench coupling` against brute force and against draws."""

import numpy as np
import pytest
import torch

from loadtest.bench.coupling import best_agreement, shared_noise_agreement
from specdec.acceptance.noise import gumbel


def some_laws(seed, size):
    """Return two random distributions [2, size] float64, with zeros for different tokens."""
    random = np.random.default_rng(seed)
    laws = random.exponential(size=(2, size)) ** 2 * (random.random((2, size)) < 0.8)
    laws[:, random.integers(size)] += 0.1
    return laws / laws.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(20))
def test_formula_is_that_of_the_paper(seed):
    """The sums over sorted tokens equal the paper's formula, added up term by term."""
    target, draft = some_laws(seed, 9)
    both = [x for x in range(9) if target[x] > 0 and draft[x] > 0]
    expected = sum(1 / np.maximum(target / target[x], draft / draft[x]).sum() for x in both)

    assert shared_noise_agreement(target, draft) == pytest.approx(expected)
    assert shared_noise_agreement(target, draft) <= best_agreement(target, draft) + 1e-12


def test_draws_agree_as_often_as_the_formula_says():
    """Tokens are drawn from both distributions with our own noise, at 20,000 positions."""
    target, draft = some_laws(3, 12)
    with np.errstate(divide="ignore"):
        logs = [torch.from_numpy(np.log(law)) for law in (target, draft)]

    agreed = 0
    for position in range(20_000):
        noise = gumbel(5, position, 12).double()
        agreed += int((logs[0] + noise).argmax()) == int((logs[1] + noise).argmax())

    assert agreed / 20_000 == pytest.approx(shared_noise_agreement(target, draft), abs=0.012)


def test_equal_laws_always_agree():
    """A draft model that equals the target always draws the same token."""
    target, _ = some_laws(1, 30)

    assert shared_noise_agreement(target, target) == pytest.approx(1.0)
    assert best_agreement(target, target) == pytest.approx(1.0)
