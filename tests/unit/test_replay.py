"""Recorded traffic: read as it was written, and the controller keeps its promises on it."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.replay.policies import Controlled, Fixed
from loadtest.replay.recording import Heard, gaps_s, how_far_right
from loadtest.replay.trace import OFF, Answer, Cost, CostTable, Trace
from loadtest.replay.world import Phase, World
from specdec.control.choices import OFF_CHOICE, Choice
from specdec.control.settings import ControlSettings

NUM_TOKENS = 5000


@pytest.fixture(scope="module")
def trace():
    """Return the recorded trace of the default pair."""
    return Trace.read()


def pace(trace, policy, phase, world=None):
    """Return tokens per second behind the first 30 % of the tokens."""
    world = world or world_of(trace)
    return world.run(phase, policy).pace(round(0.3 * phase.num_tokens))


def world_of(trace, seed=1):
    """Return what the trace was recorded of, at its beginning."""
    return World(trace.answers, CostTable(trace.costs), seed)


def controlled(trace, seed=1):
    """Return a controller and the world whose clock it reads."""
    world = world_of(trace, seed)
    return Controlled(ControlSettings(), seed, lambda: world.now_s), world


def test_trace_survives_writing(trace, tmp_path):
    """What is read back is what was written."""
    trace.write(tmp_path / "trace.json")
    assert Trace.read(tmp_path / "trace.json") == trace


@given(st.lists(st.integers(0, 6), max_size=20))
def test_drafts_between_rounds_say_the_rest(accepted):
    """A draft made inside an accepted run would have had what was left of it right."""
    rounds = [(count + 1, count) for count in accepted]
    found = how_far_right(rounds, sum(count for count, _ in rounds))

    place = 0
    for count, stood in rounds:
        assert found[place : place + count] == tuple(range(stood, -1, -1))
        place += count


def test_rounds_are_timed_while_all_streams_answer():
    """Behind the prompts of all, before the first is done; of copies where one was taken up."""
    early = Heard((), "", ((1, 0), (1, 0), (1, 0), (2, 1), (1, 0), (2, 1), (1, 0)), (*range(7),))
    late = Heard((), "", ((1, 0), (1, 0), (1, 0), (3, 2), (3, 2)), (1.0, 2.0, 3.0, 4.25, 6.0))

    assert gaps_s([early, late], "eagle3") == [1.0, 1.25]
    assert gaps_s([early], "rows") == [1.0, 1.0]
    assert gaps_s([early, Heard((), "", ((1, 0),), (2.0,))], "eagle3") == []


def test_costs_lie_between_what_was_recorded():
    """Linear in guesses and streams; beyond the ends as at the ends."""
    costs = [
        Cost("draft", length, load, (10.0 * length * load, 20.0 * length * load))
        for length in (1, 3)
        for load in (1, 5)
    ]
    table = CostTable(tuple(costs))

    assert table.seconds("draft", 2, 3, 0.5) == pytest.approx(0.015 * 2 * 3)
    assert table.seconds("draft", 9, 9, 0.0) == pytest.approx(0.010 * 3 * 5)


def test_off_says_one_token_a_step(trace):
    """The simulated server is no faster than the recorded one."""
    phase = Phase("plain", 2000, 1, tuple({each.task for each in trace.answers}))
    table = CostTable(trace.costs)

    found = World(trace.answers, table, 1).run(phase, Fixed(OFF_CHOICE))

    assert found.tokens_per_s == pytest.approx(1 / table.mean_seconds(OFF, 0, 1), rel=0.1)


def test_rows_of_copies_beside_a_head_are_in_everyones_pass():
    """Each of four streams adds a quarter of what all would, whoever waits for the pass."""
    rows_ms, head_ms, off_ms = {1: 20.0, 7: 80.0}, 30.0, 10.0
    costs = [
        Cost("rows", length, 4, (milliseconds,)) for length, milliseconds in rows_ms.items()
    ] + [Cost("eagle3", 1, 4, (head_ms,)), Cost(OFF, 0, 4, (off_ms,))]
    wrong = (0,) * 100
    answer = Answer("chat", 50, 100, (7,) * 100, {"copy": wrong, "eagle3": wrong})
    world = World([answer], CostTable(tuple(costs)), 1)

    found = world.run(Phase("copies", 4000, 4, ("chat",)), Fixed(Choice("eagle3", 1)))

    # The first round of each answer has no guesses of the head beside its copy.
    round_s = (head_ms + rows_ms[7] - rows_ms[1]) / 1000
    assert found.pace(400) == pytest.approx(4 / round_s, rel=0.02)


@pytest.mark.parametrize("num_streams", [1, 48])
def test_controller_is_never_much_slower_than_off(trace, num_streams):
    """Drafts that are never right, few streams or many: 97 % of off, trials and all."""
    useless = {"draft": 1.0, "eagle3": 1.0, "eagle3_tree": 1.0}
    tasks = tuple(dict.fromkeys(each.task for each in trace.answers))
    phase = Phase(
        "useless", NUM_TOKENS * num_streams // 4 + NUM_TOKENS, num_streams, tasks, stale=useless
    )

    auto, world = controlled(trace)
    own = world.run(phase, auto).tokens_per_s

    assert own >= 0.97 * pace(trace, Fixed(OFF_CHOICE), phase)


def test_requests_leave_with_their_phase(trace):
    """What the last phase had in flight is not in the way of the next one."""
    auto, world = controlled(trace)

    world.run(Phase("short", 800, 8, ("sql", "translation")), auto)

    assert auto.traffic.num_looping == auto.traffic.num_extra_rows == 0


def test_controller_is_nearly_as_fast_as_the_best_fixed_choice(trace):
    """On a task whose best choice nobody has told it."""
    phase = Phase("one task", NUM_TOKENS, 1, ("code_generation",))
    fixed = max(pace(trace, Fixed(Choice("eagle3", length)), phase) for length in (1, 2, 3, 4))

    auto, world = controlled(trace)

    assert pace(trace, auto, phase, world) >= 0.96 * max(
        fixed, pace(trace, Fixed(OFF_CHOICE), phase)
    )


def test_swapped_head_is_asked_again(trace):
    """One that had gone stale for long, as soon as another version of it is served.

    Without a word of the swap these four stay below 0.85.
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


def test_answers_name_their_drafters(trace):
    """Each answer has a number for each of its tokens."""
    assert {each.task for each in trace.answers} >= {"sql", "translation", "creative_writing"}
    for answer in trace.answers:
        assert isinstance(answer, Answer)
        lengths = {len(answer.copied), *(len(counts) for counts in answer.right.values())}
        assert lengths == {answer.num_tokens}
