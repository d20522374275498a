"""Tests that the replay of drafting and verification makes the loop's rounds, in computed time."""

from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.bench.overlapping import MODES, Costs, Trace, replay
from specdec.drafting.ahead import AheadDrafter
from specdec.loop import Context, speculate
from tests.unit.scripted import (
    PROMPT,
    KnowingTarget,
    ScriptedDrafter,
    right_except,
)

ALWAYS = Trace((True,) * 50, 50)


class AtOnce:
    """An executor that runs everything at once, without threads."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future


@given(
    wrong=st.sets(st.integers(0, 29)),
    num_tokens=st.integers(1, 30),
    num_missing=st.sampled_from([0, 0, 3]),
    k=st.integers(1, 5),
    mode=st.sampled_from(["serial", "pre"]),
)
def test_rounds_are_those_of_the_loop(wrong, num_tokens, num_missing, k, mode):
    """The replay makes as many rounds as the loop, for the same text and drafts."""
    text = tuple(range(100, 100 + num_tokens))
    guess = right_except(text, wrong)
    # A draft engine never returns the end token, so after the text it has no draft.
    drafters = [
        ScriptedDrafter(each, lambda place: guess(place) if place < num_tokens else None)
        for each in (k, k + 1)
    ]
    drafter = drafters[0]
    if mode == "pre":
        drafter = AheadDrafter(*drafters, k, lambda: None, AtOnce(), lambda: 0.0)
        drafter._meter.called = lambda *_: None  # without measured times it never waits
    max_tokens = num_tokens + num_missing
    context = Context(np.asarray(PROMPT, dtype=np.int32), max_tokens)
    rounds = list(speculate(context, KnowingTarget(text), drafter))
    trace = Trace(tuple(place not in wrong for place in range(num_tokens)), max_tokens)

    assert replay(trace, k, Costs.of_ratio(0.1), mode).num_rounds == len(rounds) - 1


@pytest.mark.parametrize(
    ("mode", "ratio", "seconds_a_round"),
    [
        ("serial", 0.2, 1.8),  # 4 draft tokens, then the pass
        ("post", 0.2, 1.0),  # 5 draft tokens during the pass
        ("pre", 0.2, 1.0),
        ("ahead", 0.2, 1.0),
        ("post", 0.5, 2.5),  # drafting is slower: 5 tokens of 0.5 s
    ],
)
def test_accepted_drafts_take_the_time_of_the_slower_engine(mode, ratio, seconds_a_round):
    """Serial rounds take the time of both engines, overlapped ones that of the slower engine."""
    found = replay(ALWAYS, 4, Costs.of_ratio(ratio), mode)

    num_full = found.num_tokens // 5
    assert found.total_s / seconds_a_round == pytest.approx(num_full, abs=1.0)


def test_cost_of_drafts_that_are_always_rejected():
    """In `serial` each token pays for its draft. In `pre`, plain steps run during the draft."""
    never, costs = Trace((False,) * 41, 41), Costs.of_ratio(0.1)

    times_s = {mode: replay(never, 4, costs, mode).total_s for mode in MODES}

    # The last rounds may draft 3, 2, 1 and 0 tokens.
    assert times_s["serial"] == pytest.approx(40 + 0.1 * (36 * 4 + 3 + 2 + 1))
    assert times_s["post"] == pytest.approx(times_s["serial"])
    assert times_s["pre"] == pytest.approx(40)
    assert times_s["ahead"] == times_s["pre"]


@given(alpha=st.floats(0.0, 1.0), ratio=st.floats(0.0, 0.2), seed=st.integers(0, 99))
def test_plain_steps_during_short_drafts_never_lose_to_no_speculation(alpha, ratio, seed):
    """If 5 tokens are drafted within a pass, no round takes longer than a pass."""
    found = replay(Trace.of_chance(alpha, 60, seed), 4, Costs.of_ratio(ratio), "pre")

    assert found.total_s <= found.num_tokens + 1e-9


def test_trace_reads_rejections_from_the_sources_of_tokens():
    """The target's own token marks a rejection, unless it follows a fully accepted draft."""
    trace = Trace.of_sources([2, 2, 0, 0, 2, 2, 2, 0, 2], num_drafted=3, max_tokens=9)

    assert trace.right == (True, True, False, False, True, True, True, True, True)
    assert [trace.num_right_from(place, 2) for place in (0, 1, 2, 4)] == [2, 1, 0, 2]


def test_costs_are_interpolated_linearly():
    """Beyond the recorded numbers of tokens, the nearest time holds."""
    costs = Costs(((1, 0.1), (3, 0.3)), ((2, 1.0), (16, 2.4)), 0.0)

    assert costs.draft_s(2) == pytest.approx(0.2)
    assert costs.target_s(9) == pytest.approx(1.7)
    assert (costs.target_s(0), costs.draft_s(9)) == (1.0, 0.3)


@given(alpha=st.floats(0.2, 0.95), k=st.integers(1, 6), call_passes=st.floats(0.05, 1.0))
@settings(max_examples=40, deadline=None)
def test_waits_for_a_draft_only_if_that_is_faster(alpha, k, call_passes):
    """If a call ahead takes at most a pass, the choice is within 3 % of the better mode."""
    trace, costs = Trace.of_chance(alpha, 3000), Costs.of_ratio(call_passes / (k + 1))

    times_s = {mode: replay(trace, k, costs, mode).total_s for mode in MODES}

    assert times_s["ahead"] <= 1.03 * min(times_s["post"], times_s["pre"])
