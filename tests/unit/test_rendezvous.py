"""A pass waits for rounds that are about to come, if that spares more than it costs."""

from __future__ import annotations

import pytest

from specdec.torch_engine.rendezvous import FORGOTTEN_AFTER_S, MAX_SHARE, Rendezvous


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def used(*, away_s=0.002, pass_s=0.012, rounds=100):
    """A rendezvous that knows callers who come back after `away_s`."""
    clock = Clock()
    meeting = Rendezvous(clock)
    for number in range(rounds):
        meeting.passed(pass_s)
        meeting.answered(f"a:{number}")
        clock.now_s += away_s
        meeting.arrived(f"a:{number + 1}", clock.now_s)
    return meeting, clock


def test_pass_waits_for_who_is_about_to_return():
    """One is ready, one needs 2 ms: both in one pass of 12 ms, instead of one behind the other."""
    meeting, clock = used()
    meeting.answered("a:1")
    clock.now_s += 0.0005

    assert meeting.patience_s(1) == pytest.approx(0.0015, abs=0.0005)
    meeting.arrived("a:2", clock.now_s)
    assert meeting.patience_s(2) == 0.0


def test_many_do_not_wait_for_one():
    """Nor anybody for callers that are away for long, such as a draft engine's."""
    meeting, _ = used()
    meeting.answered("a:1")
    assert meeting.patience_s(20) == 0.0

    slow, _ = used(away_s=0.9 * MAX_SHARE * 0.012 * 2)
    slow.answered("a:1")
    assert slow.patience_s(1) == 0.0


def test_nobody_waits_for_strangers():
    """Callers that never come back under a known name are no reason to wait."""
    clock = Clock()
    meeting = Rendezvous(clock)
    for number in range(50):
        meeting.passed(0.012)
        meeting.answered(f"{number}:1")
        clock.now_s += 0.02
    assert meeting.patience_s(1) == 0.0


def test_who_has_gone_is_not_waited_for():
    """A client that hung up costs one wait, and is forgotten."""
    meeting, clock = used()
    meeting.answered("a:1")
    assert meeting.patience_s(1) > 0
    clock.now_s += 0.003
    assert meeting.patience_s(1) == 0.0
    clock.now_s += FORGOTTEN_AFTER_S
    meeting.patience_s(1)
    assert not meeting._left_s


def test_return_is_timed_by_its_arrival():
    """Not by when the engine looks at it, which may be a pass later: that would never end."""
    meeting, clock = used()
    for number in range(100):
        meeting.answered(f"b:{number}")
        arrival_s = clock.now_s + 0.002
        clock.now_s += 0.012
        meeting.arrived(f"b:{number + 1}", arrival_s)
    meeting.answered("b:0")

    assert 0 < meeting.patience_s(1) < 0.004
