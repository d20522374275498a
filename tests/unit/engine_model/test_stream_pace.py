"""Tests of the pace of streams."""

import pytest

from specdec.engine_model.stream_pace import MAX_HOLD_S, MAX_RESPONSES_PER_S, StreamPace


def with_answers(num_answers, num_cores):
    """Return the pace with this many requests in flight."""
    pace = StreamPace(num_cores)
    for _ in range(num_answers):
        pace.begin()
    return pace


@pytest.mark.parametrize("num_cores", [1, 2, 64])
def test_single_stream_never_waits(num_cores):
    """It gets the tokens of each step at once."""
    assert with_answers(1, num_cores).interval_s == 0
    assert with_answers(0, num_cores).interval_s == 0


def test_wait_grows_with_the_answers_up_to_its_limit():
    """With few streams their responses together stay near the rate that the cores can send."""
    waits = [with_answers(count, 2).interval_s for count in (2, 4, 16, 64, 256)]
    assert waits == sorted(waits)
    assert waits[0] > 0
    assert waits[-1] == MAX_HOLD_S
    assert 16 / with_answers(16, 2).interval_s <= 90
    assert 64 / with_answers(64, 64).interval_s <= 1.05 * MAX_RESPONSES_PER_S


def test_ended_answers_do_not_count():
    """After all others have ended, a stream is a single one."""
    pace = with_answers(9, 2)
    for _ in range(8):
        pace.end()
    assert pace.interval_s == 0
