"""Tests of the acceptance estimates: α by task, drafter and position.

Draft tokens that were never compared do not count. New tasks start from all tasks together, and old
rounds are forgotten.
"""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.steering.acceptance_estimates import UNKNOWN, AcceptanceEstimates, DraftResult
from specdec.steering.choices import COPY, EstimatedDrafter
from specdec.steering.estimates import DECAY_ROUNDS, HALF_LIFE_S

DRAFT, OTHER = EstimatedDrafter("draft"), EstimatedDrafter("other")
MAX_POSITIONS = 16
NOW = 1e9


def rounds_of(alphas, num_rounds, rng):
    """Yield the accepted tokens of random rounds; `alphas` has the acceptance of each position."""
    for _ in range(num_rounds):
        count = 0
        while count < len(alphas) and rng.random() < alphas[count]:
            count += 1
        yield count


def fill(estimates, task, alphas, num_rounds=2000, drafter=DRAFT, seed=1, now_s=NOW):
    """Add random rounds of one task to the acceptance estimates."""
    for accepted in rounds_of(alphas, num_rounds, random.Random(seed)):
        result = DraftResult(drafter, len(alphas), len(alphas), accepted)
        estimates.add(task, "greedy", result, now_s)


def test_each_position_has_its_own_acceptance():
    """Draft tokens after a rejected one count neither for nor against, so they cause no bias."""
    estimates, alphas = AcceptanceEstimates(), (0.8, 0.6, 0.9, 0.5)
    fill(estimates, "code", alphas)

    found = estimates.estimate("code", DRAFT, "greedy", NOW, MAX_POSITIONS)

    assert found.alphas[:4] == pytest.approx(alphas, abs=0.08)
    expected = 1 + 0.8 + 0.8 * 0.6 + 0.8 * 0.6 * 0.9 + 0.8 * 0.6 * 0.9 * 0.5
    assert found.expected_tokens(4) == pytest.approx(expected, rel=0.05)


def test_alpha_is_the_censored_estimate():
    """α̂ is Σ accepted / Σ min(accepted + 1, k), not accepted ÷ drafted."""
    estimates = AcceptanceEstimates()
    for accepted in (0, 2, 4, 1):
        estimates.add("code", "greedy", DraftResult(DRAFT, 4, 4, accepted), NOW)

    alpha, num_compared = estimates.alpha("code", DRAFT)

    assert alpha == pytest.approx(7 / (1 + 3 + 4 + 2), rel=0.01)
    assert num_compared == pytest.approx(10, rel=0.02)


def test_new_task_starts_from_all_others():
    """An unknown drafter starts from UNKNOWN, which is high enough to make it worth a trial."""
    estimates = AcceptanceEstimates()
    assert estimates.estimate("sql", DRAFT, "greedy", NOW, MAX_POSITIONS).alphas[0] == UNKNOWN
    fill(estimates, "code", (0.9,) * 4)
    fill(estimates, "chat", (0.9,) * 4, seed=2)

    found = estimates.estimate("sql", DRAFT, "greedy", NOW, MAX_POSITIONS)

    assert found.alphas[0] == pytest.approx(0.9, abs=0.05)
    assert estimates.num_rounds("new", DRAFT, "greedy", 0.0) == 0


def test_copies_are_not_expected_before_one_was_found():
    """Copy drafters start from 0 rounds with a proposal, other drafters from all rounds.

    Otherwise copies would seem to replace each draft of a head that was never asked.
    """
    estimates = AcceptanceEstimates()
    expected = {
        EstimatedDrafter("head"): 1.0,
        EstimatedDrafter(COPY): 0.0,
        EstimatedDrafter(COPY, 3): 0.0,
    }
    found = {name: estimates.estimate("sql", name, "greedy", NOW, 0).proposes for name in expected}
    assert found == expected

    for _ in range(200):
        estimates.add("sql", "greedy", DraftResult(EstimatedDrafter(COPY), 7, 7, 3), NOW)
    assert estimates.estimate("sql", EstimatedDrafter(COPY), "greedy", NOW, 0).proposes > 0.9


def test_estimate_follows_a_draft_model_that_becomes_stale():
    """After 3 * DECAY_ROUNDS rounds the estimate is near the new acceptance."""
    estimates = AcceptanceEstimates()
    fill(estimates, "code", (0.8,), 4000)
    fill(estimates, "code", (0.3,), 3 * DECAY_ROUNDS, seed=2)

    found = estimates.estimate("code", DRAFT, "greedy", NOW, MAX_POSITIONS)
    assert found.alphas[0] == pytest.approx(0.3, abs=0.08)


def fill_by_turns(estimates, alphas, num_turns, seed):
    """Add rounds of two draft tokens, one for each task in turn; `alphas` is by task."""
    rng = random.Random(seed)
    for _ in range(num_turns):
        for task, alpha in alphas.items():
            (accepted,) = rounds_of((alpha, alpha), 1, rng)
            estimates.add(task, "greedy", DraftResult(DRAFT, 2, 2, accepted), NOW)


def first_alphas(estimates, tasks):
    """Return α̂ of the first draft token for each task."""
    found = [estimates.estimate(task, DRAFT, "greedy", NOW, MAX_POSITIONS) for task in tasks]
    return [each.alphas[0] for each in found]


@pytest.mark.parametrize("seed", range(5))
def test_change_of_a_draft_model_is_noticed_from_all_tasks_together(seed):
    """Twenty rounds of each of ten tasks show that a draft model became worse, or better again.

    No single task has enough rounds to tell.
    """
    estimates = AcceptanceEstimates()
    fresh = {f"task {number}": 0.45 + 0.05 * number for number in range(10)}
    stale = dict.fromkeys(fresh, 0.1)
    fill_by_turns(estimates, fresh, 400, seed)

    fill_by_turns(estimates, stale, 20, seed)
    assert statistics.mean(first_alphas(estimates, stale)) < 0.4
    fill_by_turns(estimates, stale, 200, seed)
    fill_by_turns(estimates, fresh, 20, seed + 1)
    assert statistics.mean(first_alphas(estimates, fresh)) > 0.35


def test_replaced_draft_model_does_not_inherit_estimates():
    """It is worth a trial again in every task. Estimates of other drafters stay."""
    estimates = AcceptanceEstimates()
    for drafter in (DRAFT, OTHER):
        fill(estimates, "code", (0.1, 0.1), drafter=drafter)
        fill(estimates, "chat", (0.1, 0.1), drafter=drafter)

    estimates.forget("draft")

    for task in ("code", "chat", "never seen"):
        assert estimates.estimate(task, DRAFT, "greedy", NOW, MAX_POSITIONS).alphas[0] == UNKNOWN
        assert estimates.estimate(task, OTHER, "greedy", NOW, MAX_POSITIONS).alphas[0] < 0.15
    fill(estimates, "code", (0.8, 0.8), num_rounds=40)
    assert estimates.estimate("code", DRAFT, "greedy", NOW, MAX_POSITIONS).alphas[0] > 0.6


@pytest.mark.parametrize("seed", range(5))
def test_tasks_that_differ_are_not_taken_for_a_change(seed):
    """In whatever order tasks of different acceptance come, no evidence is dropped."""
    estimates, alphas = AcceptanceEstimates(), {"code": 0.95, "chat": 0.2, "sql": 0.5}
    fill_by_turns(estimates, alphas, 2000, seed)
    for task, alpha in alphas.items():
        fill(estimates, task, (alpha, alpha), 500, seed=seed)

    assert first_alphas(estimates, alphas) == pytest.approx(list(alphas.values()), abs=0.1)
    remembered = [estimates.num_rounds(task, DRAFT, "greedy", NOW) for task in alphas]
    assert min(remembered) > 0.9 * DECAY_ROUNDS


def test_old_rounds_count_less():
    """Without new rounds for long, an estimate moves towards the one over all tasks."""
    estimates = AcceptanceEstimates()
    fill(estimates, "code", (0.9,), 400)
    fill(estimates, "chat", (0.1,), 4000, seed=2)

    later = NOW + 10 * HALF_LIFE_S
    fill(estimates, "chat", (0.1,), 400, seed=3, now_s=later)
    now, then = (
        estimates.estimate("code", DRAFT, "greedy", each, MAX_POSITIONS) for each in (NOW, later)
    )

    assert now.alphas[0] > 0.8
    assert then.alphas[0] < 0.4


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60),
    st.integers(0, 3),
)
def test_estimates_are_always_probabilities(rounds, num_errors):
    """This holds after any rounds, empty and extremely long drafts included."""
    estimates = AcceptanceEstimates()
    for drafted, accepted in rounds:
        result = DraftResult(DRAFT, drafted, drafted, min(accepted, drafted))
        estimates.add("code", "greedy", result, NOW)

    found = estimates.estimate("code", DRAFT, "greedy", NOW, MAX_POSITIONS)

    assert len(found.alphas) == MAX_POSITIONS
    assert all(0 <= alpha <= 1 for alpha in found.alphas)
    assert 0 <= found.proposes <= 1
    lengths = [found.expected_tokens(depth, num_errors) for depth in range(1, MAX_POSITIONS)]
    assert lengths == sorted(lengths)
    assert 1 <= lengths[-1] <= MAX_POSITIONS + 1


def test_forgotten_drafter_leaves_no_sums_of_the_drift_test():
    """A new version is not taken for changed because of what the old version did."""
    estimates = AcceptanceEstimates()
    for accepted in (1,) * 40 + (0,) * 14:
        estimates.add("code", "greedy", DraftResult(DRAFT, 1, 1, accepted), NOW)
    estimates.forget("draft")
    for accepted in (1, 0) * 20:
        estimates.add("code", "greedy", DraftResult(DRAFT, 1, 1, accepted), NOW)
    assert estimates.num_rounds("code", DRAFT, "greedy", NOW) > 30
