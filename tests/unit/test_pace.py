"""Prompts are read beside streams without making them wait, and never for long in one pass."""

from __future__ import annotations

import pytest

from specdec.torch_engine.pace import (
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
"""A pass of streams without a prompt."""


class Machine:
    """Passes on a clock: each costs `usual_s` if it has streams, and `row_s` per prompt row."""

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
    """After the first look at a row's cost, whatever that is."""
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
    """A pass of 1 ms would leave two rows for them, and a draft of 200 tokens 100 passes."""
    machine = Machine(0.0005, usual_s=0.001)
    for _ in range(5):
        machine.run(has_streams=True, has_prompt=False)
    machine.run(has_streams=True)

    seconds, rows = machine.run(has_streams=True)

    assert rows == int(PAUSE_S / 0.0005)
    assert seconds <= 0.001 + PAUSE_S + 1e-9


def test_row_that_grows_dearer_is_followed():
    """Attention makes the rows of a long prompt dearer as it is read."""
    machine = Machine(0.002)
    for _ in range(5):
        machine.run(has_streams=True, has_prompt=False)
    for _ in range(400):
        machine.row_s *= 1.005
        seconds, _ = machine.run(has_streams=True)
    assert seconds <= 2.1 * USUAL_S


@pytest.mark.parametrize("row_s", [0.0001, 0.005, 0.05])
def test_prompt_alone_is_read_in_passes_of_bounded_time(row_s):
    """Also where a row is cheap: the pass's own limit of rows holds."""
    machine = Machine(row_s)
    _, rows = machine.run(has_streams=False)
    assert rows == ROWS_AT_FIRST

    seconds, rows = machine.run(has_streams=False)

    assert seconds <= PASS_ALONE_S + 1e-9
    assert rows == min(LIMIT, int(PASS_ALONE_S / row_s))


def test_stream_between_two_calls_counts_as_running():
    """Rounds of speculation are calls of their own: a pass that begins between two is as short."""
    machine = Machine(0.005)
    for _ in range(5):
        machine.run(has_streams=True, has_prompt=False)
    machine.run(has_streams=True)

    assert machine.run(has_streams=False)[0] <= USUAL_S + 1e-9
    machine.now_s += STREAM_RETURNS_S
    assert machine.run(has_streams=False)[0] > 10 * USUAL_S


def test_usual_time_is_looked_up_again():
    """Where streams become more, the time they take is known a second later."""
    machine = Machine(0.005)
    machine.run(has_streams=True, has_prompt=False)
    machine.now_s += 1.1 * USUAL_IS_KNOWN_S

    assert machine.run(has_streams=True)[1] == 0
    assert machine.run(has_streams=True)[1] > 0


def test_small_passes_say_nothing_of_the_cost_of_a_row():
    """A pass of one row may take as long as one of a hundred, on a GPU above all."""
    pace = Pace()
    for _ in range(20):
        pace.passed(0.1, num_rows=1, num_prompt_rows=0)
    assert pace.max_rows(LIMIT) == LIMIT


@pytest.mark.parametrize("row_s", [0.0001, 0.005, 0.03, 1.0])
def test_no_pass_is_taken_for_a_hang(row_s):
    """Rows of verification beside long contexts are dear; each stream still gets its token."""
    pace = Pace()
    assert pace.max_rows(LIMIT) == LIMIT
    for _ in range(20):
        pace.passed(100 * row_s, num_rows=100, num_prompt_rows=0)

    rows = pace.max_rows(LIMIT)

    assert rows in (LIMIT, MIN_PASS_ROWS) or rows * row_s <= MAX_PASS_S
    assert rows >= min(LIMIT, 0.9 * MAX_PASS_S / row_s)
