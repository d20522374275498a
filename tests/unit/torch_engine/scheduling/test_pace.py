"""Tests that prompts are read in short passes, which do not make streams wait."""

from __future__ import annotations

import pytest

from specdec.torch_engine.scheduling.pace import (
    MAX_PASS_S,
    MIN_PASS_ROWS,
    PASS_ALONE_S,
    PAUSE_S,
    ROWS_AT_FIRST,
    STREAM_RETURNS_S,
    USUAL_IS_KNOWN_S,
    Pace,
)

LIMIT = 512
USUAL_S = 0.03
"""Seconds that a pass of streams takes without a prompt."""


class Machine:
    """A machine with a simulated clock.

    A pass takes `usual_s` if it has streams, and `row_s` for each prompt row.
    """

    def __init__(self, row_s, usual_s=USUAL_S):
        self.now_s = 100.0
        self.row_s, self.usual_s = row_s, usual_s
        self.pace = Pace(lambda: self.now_s)

    def run(self, *, has_streams, has_prompt=True):
        """Run a pass; return its seconds and its prompt rows."""
        rows = self.pace.max_prompt_rows(has_streams=has_streams, limit=LIMIT) if has_prompt else 0
        seconds = self.usual_s * has_streams + rows * self.row_s
        self.now_s += seconds
        self.pace.passed(seconds, num_rows=rows + has_streams, num_prompt_rows=rows)
        return seconds, rows


@pytest.mark.parametrize("row_s", [0.00002, 0.001, 0.005, 0.02])
def test_pass_beside_streams_takes_at_most_twice_its_usual_time(row_s):
    """It holds for any cost of a row, once a first pass has measured that cost."""
    machine = Machine(row_s)
    for _ in range(5):
        machine.run(has_streams=True, has_prompt=False)
    machine.run(has_streams=True)

    passes = [machine.run(has_streams=True) for _ in range(200)]

    assert max(seconds for seconds, _ in passes) <= 2 * USUAL_S + 1e-9
    spent = sum(seconds for seconds, _ in passes)
    reading_s = sum(rows for _, rows in passes) * row_s
    limit_s = sum(min(LIMIT * row_s, USUAL_S) for _ in passes)
    assert reading_s >= 0.3 * min(spent, limit_s), "prompts keep a fair share of the time"


def test_prompts_are_read_fast_where_passes_are_short():
    """Doubling a pass of 1 ms would allow two prompt rows only, so PAUSE_S sets the limit."""
    machine = Machine(0.0005, usual_s=0.001)
    for _ in range(5):
        machine.run(has_streams=True, has_prompt=False)
    machine.run(has_streams=True)

    seconds, rows = machine.run(has_streams=True)

    assert rows == int(PAUSE_S / 0.0005)
    assert seconds <= 0.001 + PAUSE_S + 1e-9


def test_rising_cost_of_a_row_is_followed():
    """Attention makes rows of a long prompt cost more towards its end."""
    machine = Machine(0.002)
    for _ in range(5):
        machine.run(has_streams=True, has_prompt=False)
    for _ in range(400):
        machine.row_s *= 1.005
        seconds, _ = machine.run(has_streams=True)
    assert seconds <= 2.1 * USUAL_S


@pytest.mark.parametrize("row_s", [0.0001, 0.005, 0.05])
def test_prompts_without_streams_are_read_in_passes_of_bounded_time(row_s):
    """A pass takes at most PASS_ALONE_S; if rows are cheap, the limit of rows holds."""
    machine = Machine(row_s)
    _, rows = machine.run(has_streams=False)
    assert rows == ROWS_AT_FIRST

    seconds, rows = machine.run(has_streams=False)

    assert seconds <= PASS_ALONE_S + 1e-9
    assert rows == min(LIMIT, int(PASS_ALONE_S / row_s))


def test_stream_between_two_calls_counts_as_running():
    """Each round is a call of its own, so passes between two rounds are kept short as well."""
    machine = Machine(0.005)
    for _ in range(5):
        machine.run(has_streams=True, has_prompt=False)
    machine.run(has_streams=True)

    assert machine.run(has_streams=False)[0] <= USUAL_S + 1e-9
    machine.now_s += STREAM_RETURNS_S
    assert machine.run(has_streams=False)[0] > 10 * USUAL_S


def test_usual_time_is_measured_again():
    """After USUAL_IS_KNOWN_S a pass runs without prompts, to learn the time of the streams."""
    machine = Machine(0.005)
    machine.run(has_streams=True, has_prompt=False)
    machine.now_s += 1.1 * USUAL_IS_KNOWN_S

    assert machine.run(has_streams=True)[1] == 0
    assert machine.run(has_streams=True)[1] > 0


def test_small_passes_do_not_change_the_cost_of_a_row():
    """A pass of one row may take as long as one of a hundred, above all on a GPU."""
    pace = Pace()
    for _ in range(20):
        pace.passed(0.1, num_rows=1, num_prompt_rows=0)
    assert pace.max_rows(LIMIT) == LIMIT


@pytest.mark.parametrize("row_s", [0.0001, 0.005, 0.03, 1.0])
def test_no_pass_is_taken_for_a_hang(row_s):
    """If rows are expensive, a pass is cut to MAX_PASS_S, but each stream still gets a row."""
    pace = Pace()
    assert pace.max_rows(LIMIT) == LIMIT
    for _ in range(20):
        pace.passed(100 * row_s, num_rows=100, num_prompt_rows=0)

    rows = pace.max_rows(LIMIT)

    assert rows in (LIMIT, MIN_PASS_ROWS) or rows * row_s <= MAX_PASS_S
    assert rows >= min(LIMIT, 0.9 * MAX_PASS_S / row_s)
