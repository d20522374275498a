"""Recorded requests: read as they were written, and replayed to compare the controller's speed."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.loadtest.lab.controller.policies import Controlled, Fixed
from specdec.loadtest.lab.controller.record import Received, accepted_by_position, gaps_s
from specdec.loadtest.lab.controller.trace import OFF, Answer, Cost, CostTable, Trace
from specdec.loadtest.lab.controller.world import Phase, World
from specdec.steering.choices import OFF_CHOICE, Choice
from specdec.steering.settings import ControlSettings

NUM_TOKENS = 5000


@pytest.fixture(scope="module")
def trace():
    """Return the recorded trace of the default pair."""
    return Trace.read()


def pace(trace, policy, phase, world=None):
    """Return tokens per second after the first 30 % of the phase's tokens."""
    world = world or world_of(trace)
    return world.run(phase, policy).pace(round(0.3 * phase.num_tokens))


def world_of(trace, seed=1):
    """Return a simulated server that answers as recorded in the trace, its clock at 0."""
    return World(trace.answers, CostTable(trace.costs), seed)


def controlled(trace, seed=1):
    """Return the controller's policy, and the simulated server whose clock it reads."""
    world = world_of(trace, seed)
    return Controlled(ControlSettings(), seed, lambda: world.now_s), world


def test_trace_survives_writing(trace, tmp_path):
    """A trace that is written and read again is equal."""
    trace.write(tmp_path / "trace.json")
    assert Trace.read(tmp_path / "trace.json") == trace


@given(st.lists(st.integers(0, 6), max_size=20))
def test_draft_inside_an_accepted_run_has_its_remaining_tokens_accepted(accepted):
    """The trace has counts for such positions too, although no round began there."""
    rounds = [(count + 1, count) for count in accepted]
    found = accepted_by_position(rounds, sum(count for count, _ in rounds))

    position = 0
    for count, accepted_in_round in rounds:
        assert found[position : position + count] == tuple(range(accepted_in_round, -1, -1))
        position += count


def test_rounds_are_timed_while_all_streams_answer():
    """Times count after all prompts are read and before the first stream ends.

    For `rows`, only rounds with accepted draft tokens count.
    """
    early = Received((), "", ((1, 0), (1, 0), (1, 0), (2, 1), (1, 0), (2, 1), (1, 0)), (*range(7),))
    late = Received((), "", ((1, 0), (1, 0), (1, 0), (3, 2), (3, 2)), (1.0, 2.0, 3.0, 4.25, 6.0))

    assert gaps_s([early, late], "eagle3") == [1.0, 1.25]
    assert gaps_s([early], "rows") == [1.0, 1.0]
    assert gaps_s([early, Received((), "", ((1, 0),), (2.0,))], "eagle3") == []


def test_costs_are_interpolated_between_recorded_ones():
    """Costs are linear in draft tokens and streams, and constant beyond the recorded range."""
    costs = [
        Cost("draft", length, load, (10.0 * length * load, 20.0 * length * load))
        for length in (1, 3)
        for load in (1, 5)
    ]
    table = CostTable(tuple(costs))

    assert table.seconds("draft", 2, 3, 0.5) == pytest.approx(0.015 * 2 * 3)
    assert table.seconds("draft", 9, 9, 0.0) == pytest.approx(0.010 * 3 * 5)


def test_without_speculation_a_step_gives_one_token(trace):
    """The simulated server is as fast as the recorded one, within 10 %."""
    phase = Phase("plain", 2000, 1, tuple({each.task for each in trace.answers}))
    table = CostTable(trace.costs)

    found = World(trace.answers, table, 1).run(phase, Fixed(OFF_CHOICE))

    assert found.tokens_per_s == pytest.approx(1 / table.mean_seconds(OFF, 0, 1), rel=0.1)


def test_rows_of_copies_beside_a_head_slow_every_stream():
    """Each of four streams adds to every pass a quarter of what all four would add."""
    rows_ms, head_ms, off_ms = {1: 20.0, 7: 80.0}, 30.0, 10.0
    costs = [
        Cost("rows", length, 4, (milliseconds,)) for length, milliseconds in rows_ms.items()
    ] + [Cost("eagle3", 1, 4, (head_ms,)), Cost(OFF, 0, 4, (off_ms,))]
    wrong = (0,) * 100
    answer = Answer("chat", 50, 100, (7,) * 100, {"copy": wrong, "eagle3": wrong})
    world = World([answer], CostTable(tuple(costs)), 1)

    found = world.run(Phase("copies", 4000, 4, ("chat",)), Fixed(Choice("eagle3", 1)))

    # In the first round of each answer the head has no draft beside the copy.
    round_s = (head_ms + rows_ms[7] - rows_ms[1]) / 1000
    assert found.pace(400) == pytest.approx(4 / round_s, rel=0.02)


@pytest.mark.parametrize("num_streams", [1, 48])
def test_controller_is_never_much_slower_than_without_speculation(trace, num_streams):
    """With drafts that are never accepted it keeps 97 % of that speed, trials included."""
    useless = {"draft": 1.0, "eagle3": 1.0, "eagle3_tree": 1.0}
    tasks = tuple(dict.fromkeys(each.task for each in trace.answers))
    phase = Phase(
        "useless", NUM_TOKENS * num_streams // 4 + NUM_TOKENS, num_streams, tasks, stale=useless
    )

    auto, world = controlled(trace)
    own = world.run(phase, auto).tokens_per_s

    assert own >= 0.97 * pace(trace, Fixed(OFF_CHOICE), phase)


def test_requests_end_with_their_phase(trace):
    """Requests in flight at the end of a phase do not count as load in the next one."""
    auto, world = controlled(trace)

    world.run(Phase("short", 800, 8, ("sql", "translation")), auto)

    step = auto.load.step(OFF_CHOICE, 10)
    assert (step.num_looping, step.num_rows) == (0, auto.load.num_inflight)


def test_controller_is_nearly_as_fast_as_the_best_fixed_choice(trace):
    """On a task that is new to it, it reaches 96 % of the best fixed choice."""
    phase = Phase("one task", NUM_TOKENS, 1, ("code_generation",))
    fixed = max(pace(trace, Fixed(Choice("eagle3", length)), phase) for length in (1, 2, 3, 4))

    auto, world = controlled(trace)

    assert pace(trace, auto, phase, world) >= 0.96 * max(
        fixed, pace(trace, Fixed(OFF_CHOICE), phase)
    )


@pytest.mark.parametrize("num_slow_tokens", [8, 600])
def test_slow_start_does_not_spoil_the_choice(trace, num_slow_tokens):
    """While another program starts too, rounds take ten times as long; later the head drafts.

    If the slow times were kept, the means over these seeds would be 0.94 and 0.73.
    """
    tasks = tuple(dict.fromkeys(each.task for each in trace.answers))
    phase = Phase("slow start", NUM_TOKENS, 1, tasks, num_slow_tokens=num_slow_tokens)
    best, shares = Fixed(Choice("eagle3", 3)), []
    for seed in range(1, 5):
        auto, world = controlled(trace, seed)
        shares.append(
            pace(trace, auto, phase, world) / pace(trace, best, phase, world_of(trace, seed))
        )

    assert statistics.mean(shares) >= 0.95


def test_controller_uses_a_replaced_head_again(trace):
    """A head that was stale for long is used again as soon as another version of it is served.

    If the controller is not told of the replacement, these four seeds stay below 0.85 times the
    speed of the best choice.
    """
    tasks = tuple(dict.fromkeys(each.task for each in trace.answers))
    heads = "eagle3", "eagle3_tree"
    stale = Phase("stale", NUM_TOKENS, 1, tasks, stale=dict.fromkeys(heads, 0.8))
    fresh = Phase("fresh", NUM_TOKENS, 1, tasks)
    best, shares = Fixed(Choice("eagle3", 3)), []
    for seed in range(1, 5):
        auto, world = controlled(trace, seed)
        world.run(stale, auto)
        auto.controller.renew(heads)
        rival = world_of(trace, seed)
        shares.append(pace(trace, auto, fresh, world) / pace(trace, best, fresh, rival))

    assert statistics.mean(shares) >= 0.95


def test_recorded_answers_have_counts_for_each_token(trace):
    """For each token there is the length of a copy, and the number of right tokens by drafter."""
    assert {each.task for each in trace.answers} >= {"sql", "translation", "creative_writing"}
    for answer in trace.answers:
        assert isinstance(answer, Answer)
        lengths = {
            len(answer.num_copied),
            *(len(counts) for counts in answer.num_accepted.values()),
        }
        assert lengths == {answer.num_tokens}
