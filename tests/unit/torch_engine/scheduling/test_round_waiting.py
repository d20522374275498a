"""A pass waits for rounds that are about to arrive, if that saves more time than it costs."""

from __future__ import annotations

import pytest

from specdec.torch_engine.scheduling.round_waiting import FORGOTTEN_AFTER_S, MAX_SHARE, RoundWaiting


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def used(*, away_s=0.002, pass_s=0.012, rounds=100):
    """Return a rendezvous that has seen a caller return after `away_s` seconds, and its clock."""
    clock = Clock()
    meeting = RoundWaiting(clock)
    for number in range(rounds):
        meeting.passed(pass_s)
        meeting.answered(f"a:{number}")
        clock.now_s += away_s
        meeting.arrived(f"a:{number + 1}", clock.now_s)
    return meeting, clock


def test_pass_waits_for_a_caller_that_is_about_to_return():
    """One task is ready and one needs 2 ms: both share a pass of 12 ms instead of taking turns."""
    meeting, clock = used()
    meeting.answered("a:1")
    clock.now_s += 0.0005

    assert meeting.wait_s(1) == pytest.approx(0.0015, abs=0.0005)
    meeting.arrived("a:2", clock.now_s)
    assert meeting.wait_s(2) == 0.0


def test_many_ready_tasks_do_not_wait_for_one_caller():
    """No task waits for callers that stay away for long, such as those of a draft engine."""
    meeting, _ = used()
    meeting.answered("a:1")
    assert meeting.wait_s(20) == 0.0

    slow, _ = used(away_s=0.9 * MAX_SHARE * 0.012 * 2)
    slow.answered("a:1")
    assert slow.wait_s(1) == 0.0


def test_pass_does_not_wait_for_callers_that_never_return():
    """In this test each call has the id of a new caller."""
    clock = Clock()
    meeting = RoundWaiting(clock)
    for number in range(50):
        meeting.passed(0.012)
        meeting.answered(f"{number}:1")
        clock.now_s += 0.02
        meeting.forget_absent()
    assert meeting.wait_s(1) == 0.0


def test_pass_stops_waiting_for_a_client_that_left():
    """A client that hung up costs one wait, and is then forgotten."""
    meeting, clock = used()
    meeting.answered("a:1")
    assert meeting.wait_s(1) > 0
    clock.now_s += 0.003
    assert meeting.wait_s(1) == 0.0
    clock.now_s += FORGOTTEN_AFTER_S
    meeting.forget_absent()
    assert not meeting._left_s


def test_absence_ends_when_a_call_arrives():
    """The engine may see the call a pass later; if that counted, waits would grow for ever."""
    meeting, clock = used()
    for number in range(100):
        meeting.answered(f"b:{number}")
        arrival_s = clock.now_s + 0.002
        clock.now_s += 0.012
        meeting.arrived(f"b:{number + 1}", arrival_s)
    meeting.answered("b:0")

    assert 0 < meeting.wait_s(1) < 0.004
