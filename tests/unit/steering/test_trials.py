"""Trials come soon for a new task, rarely for a known one, and more rarely under load."""

from __future__ import annotations

import pytest

from specdec.steering.trials import STREAMS_PER_TRIAL, TRIAL_EVERY, Trials


def due(trials, num_requests, num_inflight, task="sql"):
    """Return the numbers, from 1, of the requests for which a trial is due; none of them begins."""
    return [n for n in range(1, num_requests + 1) if trials.is_due(task, num_inflight)]


def test_new_task_has_trials_soon_and_a_known_one_now_and_then():
    """Other tasks do not matter, and a task's first request never begins with a trial."""
    trials = Trials()
    assert due(trials, 80, 1) == [2, 4, 8, 24, 40, 56, 72]
    assert due(trials, 9, 1, "mail") == [2, 4, 8]
    assert due(Trials(), 80, 8) == [4, 8, 16, 48, 80]


@pytest.mark.parametrize("num_inflight", [4, 8, 16, 48, 256])
def test_share_of_passes_with_a_trial_does_not_grow_with_the_load(num_inflight):
    """Under load requests come more often, while a trial lasts as long, so fewer may begin one."""
    num_requests = 400 * num_inflight
    num_tried = len(due(Trials(), num_requests, num_inflight))
    assert num_tried / num_requests * num_inflight <= 1.1 * 4 / TRIAL_EVERY
    assert num_tried >= 20


@pytest.mark.parametrize(("num_inflight", "limit"), [(1, 1), (48, 1), (4 * STREAMS_PER_TRIAL, 4)])
def test_few_trials_run_at_a_time_and_a_delayed_one_comes_later(num_inflight, limit):
    """The next request that finds room makes up for a delayed trial."""
    trials, times_rarer = Trials(), max(1, num_inflight // 4)
    for number in range(limit):
        assert len(due(trials, 2 * times_rarer, num_inflight, f"task {number}")) == 1
        trials.begin()
    assert due(trials, 8 * times_rarer, num_inflight) == []
    trials.end()
    assert due(trials, 20000, num_inflight)[:1] == [(TRIAL_EVERY - 8) * times_rarer]
