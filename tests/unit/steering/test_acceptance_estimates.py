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


def fill(book, task, alphas, num_rounds=2000, drafter=DRAFT, seed=1, now_s=NOW):
    """Add random rounds of one task to the acceptance estimates."""
    for accepted in rounds_of(alphas, num_rounds, random.Random(seed)):
        book.add(task, "greedy", DraftResult(drafter, len(alphas), len(alphas), accepted), now_s)


def test_each_position_has_its_own_acceptance():
    """Draft tokens after a rejected one count neither for nor against, so they cause no bias."""
    book, alphas = AcceptanceEstimates(), (0.8, 0.6, 0.9, 0.5)
    fill(book, "code", alphas)

    found = book.estimate("code", DRAFT, "greedy", NOW, MAX_POSITIONS)

    assert found.alphas[:4] == pytest.approx(alphas, abs=0.08)
    expected = 1 + 0.8 + 0.8 * 0.6 + 0.8 * 0.6 * 0.9 + 0.8 * 0.6 * 0.9 * 0.5
    assert found.expected_tokens(4) == pytest.approx(expected, rel=0.05)


def test_alpha_is_the_censored_estimate():
    """α̂ is Σ accepted / Σ min(accepted + 1, k), not accepted ÷ drafted."""
    book = AcceptanceEstimates()
    for accepted in (0, 2, 4, 1):
        book.add("code", "greedy", DraftResult(DRAFT, 4, 4, accepted), NOW)

    alpha, num_judged = book.alpha("code", DRAFT)

    assert alpha == pytest.approx(7 / (1 + 3 + 4 + 2), rel=0.01)
    assert num_judged == pytest.approx(10, rel=0.02)


def test_new_task_starts_from_all_others():
    """An unknown drafter starts from UNKNOWN, which is high enough to make it worth a trial."""
    book = AcceptanceEstimates()
    assert book.estimate("sql", DRAFT, "greedy", NOW, MAX_POSITIONS).alphas[0] == UNKNOWN
    fill(book, "code", (0.9,) * 4)
    fill(book, "chat", (0.9,) * 4, seed=2)

    found = book.estimate("sql", DRAFT, "greedy", NOW, MAX_POSITIONS)

    assert found.alphas[0] == pytest.approx(0.9, abs=0.05)
    assert book.num_rounds("new", DRAFT, "greedy", 0.0) == 0


def test_copies_are_not_expected_before_one_was_found():
    """Copy drafters start from 0 rounds with a proposal, other drafters from all rounds.

    Otherwise copies would seem to replace each draft of a head that was never asked.
    """
    book = AcceptanceEstimates()
    expected = {
        EstimatedDrafter("head"): 1.0,
        EstimatedDrafter(COPY): 0.0,
        EstimatedDrafter(COPY, 3): 0.0,
    }
    found = {name: book.estimate("sql", name, "greedy", NOW, 0).proposes for name in expected}
    assert found == expected

    for _ in range(200):
        book.add("sql", "greedy", DraftResult(EstimatedDrafter(COPY), 7, 7, 3), NOW)
    assert book.estimate("sql", EstimatedDrafter(COPY), "greedy", NOW, 0).proposes > 0.9


def test_estimate_follows_a_draft_model_that_becomes_stale():
    """After 3 * DECAY_ROUNDS rounds the estimate is near the new acceptance."""
    book = AcceptanceEstimates()
    fill(book, "code", (0.8,), 4000)
    fill(book, "code", (0.3,), 3 * DECAY_ROUNDS, seed=2)

    assert book.estimate("code", DRAFT, "greedy", NOW, MAX_POSITIONS).alphas[0] == pytest.approx(
        0.3, abs=0.08
    )


def fill_by_turns(book, alphas, num_turns, seed):
    """Add rounds of two draft tokens, one for each task in turn; `alphas` is by task."""
    rng = random.Random(seed)
    for _ in range(num_turns):
        for task, alpha in alphas.items():
            (accepted,) = rounds_of((alpha, alpha), 1, rng)
            book.add(task, "greedy", DraftResult(DRAFT, 2, 2, accepted), NOW)


def first_alphas(book, tasks):
    """Return α̂ of the first draft token for each task."""
    return [book.estimate(task, DRAFT, "greedy", NOW, MAX_POSITIONS).alphas[0] for task in tasks]


@pytest.mark.parametrize("seed", range(5))
def test_change_of_a_draft_model_is_noticed_from_all_tasks_together(seed):
    """Twenty rounds of each of ten tasks show that a draft model became worse, or better again.

    No single task has enough rounds to tell.
    """
    book = AcceptanceEstimates()
    fresh = {f"task {number}": 0.45 + 0.05 * number for number in range(10)}
    stale = dict.fromkeys(fresh, 0.1)
    fill_by_turns(book, fresh, 400, seed)

    fill_by_turns(book, stale, 20, seed)
    assert statistics.mean(first_alphas(book, stale)) < 0.4
    fill_by_turns(book, stale, 200, seed)
    fill_by_turns(book, fresh, 20, seed + 1)
    assert statistics.mean(first_alphas(book, fresh)) > 0.35


def test_replaced_draft_model_does_not_inherit_estimates():
    """It is worth a trial again in every task. Estimates of other drafters stay."""
    book = AcceptanceEstimates()
    for drafter in (DRAFT, OTHER):
        fill(book, "code", (0.1, 0.1), drafter=drafter)
        fill(book, "chat", (0.1, 0.1), drafter=drafter)

    book.forget("draft")

    for task in ("code", "chat", "never seen"):
        assert book.estimate(task, DRAFT, "greedy", NOW, MAX_POSITIONS).alphas[0] == UNKNOWN
        assert book.estimate(task, OTHER, "greedy", NOW, MAX_POSITIONS).alphas[0] < 0.15
    fill(book, "code", (0.8, 0.8), num_rounds=40)
    assert book.estimate("code", DRAFT, "greedy", NOW, MAX_POSITIONS).alphas[0] > 0.6


@pytest.mark.parametrize("seed", range(5))
def test_tasks_that_differ_are_not_taken_for_a_change(seed):
    """In whatever order tasks of different acceptance come, no evidence is dropped."""
    book, alphas = AcceptanceEstimates(), {"code": 0.95, "chat": 0.2, "sql": 0.5}
    fill_by_turns(book, alphas, 2000, seed)
    for task, alpha in alphas.items():
        fill(book, task, (alpha, alpha), 500, seed=seed)

    assert first_alphas(book, alphas) == pytest.approx(list(alphas.values()), abs=0.1)
    remembered = [book.num_rounds(task, DRAFT, "greedy", NOW) for task in alphas]
    assert min(remembered) > 0.9 * DECAY_ROUNDS


def test_old_rounds_count_less():
    """Without new rounds for long, an estimate moves towards the one over all tasks."""
    book = AcceptanceEstimates()
    fill(book, "code", (0.9,), 400)
    fill(book, "chat", (0.1,), 4000, seed=2)

    later = NOW + 10 * HALF_LIFE_S
    fill(book, "chat", (0.1,), 400, seed=3, now_s=later)
    now, then = (
        book.estimate("code", DRAFT, "greedy", each, MAX_POSITIONS) for each in (NOW, later)
    )

    assert now.alphas[0] > 0.8
    assert then.alphas[0] < 0.4


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60),
    st.integers(0, 3),
)
def test_estimates_are_always_probabilities(rounds, num_errors):
    """This holds after any rounds, empty and extremely long drafts included."""
    book = AcceptanceEstimates()
    for drafted, accepted in rounds:
        result = DraftResult(DRAFT, drafted, drafted, min(accepted, drafted))
        book.add("code", "greedy", result, NOW)

    found = book.estimate("code", DRAFT, "greedy", NOW, MAX_POSITIONS)

    assert len(found.alphas) == MAX_POSITIONS
    assert all(0 <= alpha <= 1 for alpha in found.alphas)
    assert 0 <= found.proposes <= 1
    lengths = [found.expected_tokens(depth, num_errors) for depth in range(1, MAX_POSITIONS)]
    assert lengths == sorted(lengths)
    assert 1 <= lengths[-1] <= MAX_POSITIONS + 1


def test_forgotten_drafter_leaves_no_sums_of_the_drift_test():
    """A new version is not taken for changed because of what the old version did."""
    book = AcceptanceEstimates()
    for accepted in (1,) * 40 + (0,) * 14:
        book.add("code", "greedy", DraftResult(DRAFT, 1, 1, accepted), NOW)
    book.forget("draft")
    for accepted in (1, 0) * 20:
        book.add("code", "greedy", DraftResult(DRAFT, 1, 1, accepted), NOW)
    assert book.num_rounds("code", DRAFT, "greedy", NOW) > 30
