"""Tests of the cost model, which learns times from rounds: of passes, drafts and prompts."""

from __future__ import annotations

import random

import pytest

from specdec.steering import baselines
from specdec.steering.baselines import AGAIN_AFTER, ENOUGH_STEPS, MANY_STEPS
from specdec.steering.costs import MAX_OUTLIER, ROW_SHARE, CostModel, Sample, load_bucket


def fill(costs, num_samples=600, load=1, *, noise=0.1, seed=1, stall=0.0):
    """Give `costs` passes of 10 ms, 0.2 ms a row, and 1 ms per 1,000 tokens of context.

    Plain steps, 3 in 10, take 1 ms less. Drafts take 1 ms, and 2 ms per token. `noise` is the
    standard deviation of the logarithm of each time, `stall` the share of passes that take 100
    times as long.
    """
    rng = random.Random(seed)
    for _ in range(num_samples):
        rows, context, is_streamed = rng.randint(1, 8), rng.randint(0, 4000), rng.random() < 0.3
        rows = 1 if is_streamed else rows
        target_s = 0.010 + 0.0002 * rows * load + 0.001 * context / 1000 - 0.001 * is_streamed
        target_s *= rng.lognormvariate(0, noise) * (100 if rng.random() < stall else 1)
        lead = "draft" if rows > 1 and rng.random() < 0.5 else None
        draft_s = (0.001 + 0.002 * (rows - 1)) * rng.lognormvariate(0, noise) if lead else 0.0
        costs.add(
            Sample(
                num_inflight=load,
                num_looping=0 if is_streamed else load,
                num_rows=rows * load,
                num_context=context,
                is_streamed=is_streamed,
                target_s=target_s,
                lead=lead,
                num_drafted=rows - 1,
                draft_s=draft_s,
            )
        )


def pass_s(costs, load, rows, context, *, is_streamed=False):
    """Return the seconds that `costs` expects of a pass with `rows` rows of all requests."""
    start_s, row_s = costs.pass_line(load, context, is_streamed=is_streamed)
    return start_s + row_s * rows


def head_round(num_drafted, target_s):
    """Return the Sample of a single request's round in which a head drafts `num_drafted` tokens."""
    return Sample(
        num_inflight=1,
        num_looping=1,
        num_rows=1 + num_drafted,
        num_context=100,
        is_streamed=False,
        target_s=target_s,
        lead="eagle3",
        num_drafted=num_drafted,
        is_head=True,
    )


def head_s(costs, num_drafted):
    """Return the seconds that `costs` expects of a round like `head_round`."""
    return pass_s(costs, 1, 1 + num_drafted, 100) + costs.draft_s("eagle3", 1, num_drafted)


def test_passes_and_drafts_are_learned():
    """Despite noise, expected times of passes are right within 10 %, of drafts within 15 %."""
    costs = CostModel()
    fill(costs)

    assert pass_s(costs, 1, 1, 0) == pytest.approx(0.0102, rel=0.1)
    assert pass_s(costs, 1, 8, 2000) == pytest.approx(0.0136, rel=0.1)
    assert pass_s(costs, 1, 1, 0, is_streamed=True) == pytest.approx(0.0092, rel=0.1)
    assert costs.draft_s("draft", 1, 4) == pytest.approx(0.009, rel=0.15)


@pytest.mark.parametrize(("num_plain", "times_as_long"), [(60, 3.5), (600, 2.5), (6000, 1.3)])
def test_one_slow_plain_step_during_a_round_hardly_affects_rounds(num_plain, times_as_long):
    """The slow step counts once, however many plain steps follow, and fades like them.

    During that step another request speculates.
    """
    costs = CostModel()

    def step(seconds, num_looping=0):
        costs.add(
            Sample(
                num_inflight=4,
                num_looping=num_looping,
                num_rows=4,
                num_context=100,
                is_streamed=True,
                target_s=seconds,
            )
        )

    for _ in range(10):
        step(0.020)
    step(0.060, num_looping=1)
    for _ in range(num_plain):
        step(0.020)

    assert pass_s(costs, 4, 4, 100, is_streamed=True) == pytest.approx(0.020, rel=0.1)
    assert pass_s(costs, 4, 4, 100) < times_as_long * 0.020


@pytest.mark.parametrize("later_s", [0.007, 0.010, 0.014])
def test_rounds_of_a_head_keep_their_measured_time(later_s):
    """Later times of passes without the head do not change what its rounds are expected to take.

    A round of a head is only timed as a whole.
    """
    costs = CostModel()

    def passes(seconds):
        for _ in range(40):
            costs.add(
                Sample(
                    num_inflight=1,
                    num_looping=1,
                    num_rows=1,
                    num_context=100,
                    is_streamed=False,
                    target_s=seconds,
                )
            )

    passes(0.010)
    for place in range(400):
        num_drafted = 2 + place % 2
        costs.add(head_round(num_drafted, 0.015 + 0.001 * num_drafted))
    passes(later_s)

    for num_drafted in (2, 3):
        assert head_s(costs, num_drafted) == pytest.approx(0.015 + 0.001 * num_drafted, rel=0.02)


def test_times_at_higher_loads_do_not_distort_those_of_one_request():
    """A single line through the samples of all loads would need impossible coefficients here."""
    costs, rng = CostModel(), random.Random(2)
    for load, step_s, row_s in ((1, 0.013, 0.001), (4, 0.016, 0.0013), (16, 0.030, 0.002)):
        for _ in range(600):
            is_streamed, context = rng.random() < 0.3, rng.randint(50, 250)
            rows = load if is_streamed else load * rng.randint(1, 5)
            num_looping = 0 if is_streamed else load
            target_s = step_s + row_s * rows + 0.0017 * num_looping
            costs.add(
                Sample(
                    num_inflight=load,
                    num_looping=num_looping,
                    num_rows=rows,
                    num_context=context,
                    is_streamed=is_streamed,
                    target_s=target_s * rng.lognormvariate(0, 0.2),
                )
            )

    assert pass_s(costs, 1, 1, 128) == pytest.approx(0.0157, rel=0.1)
    assert pass_s(costs, 1, 4, 128) == pytest.approx(0.0187, rel=0.1)
    assert pass_s(costs, 1, 1, 128, is_streamed=True) == pytest.approx(0.014, rel=0.1)
    assert pass_s(costs, 16, 16, 128) == pytest.approx(0.0892, rel=0.15)


def busy_step(load, *, extra_rows=0, num_looping=0, is_streamed=True, noise=1.0):
    """Return the Sample of a pass of 10 ms and 1.2 ms a row, and of 3 ms more for a round.

    The pass has a row for each of `load` requests, and `extra_rows`. `noise` multiplies its time.
    """
    rows = load + extra_rows
    seconds = noise * (0.010 + 0.0012 * rows + (0 if is_streamed else 0.003))
    return Sample(load, num_looping, rows, 200, is_streamed, seconds)


def test_few_rounds_among_many_plain_steps_tell_the_cost_of_rows():
    """Only rounds with draft tokens tell the cost of a row, because plain steps all have 8 rows.

    They are 1 step in 100 of the first half, and none of the second.
    """
    costs, rng = CostModel(), random.Random(3)
    for place in range(20000):
        extra_rows = rng.randint(0, 6) if place < 10000 and place % 100 == 0 else None
        noise = rng.lognormvariate(0, 0.1)
        if extra_rows is None:
            costs.add(busy_step(8, noise=noise))
        else:
            costs.add(
                busy_step(8, extra_rows=extra_rows, num_looping=1, is_streamed=False, noise=noise)
            )

    more_s = pass_s(costs, 8, 40, 200) - pass_s(costs, 8, 8, 200)
    assert more_s == pytest.approx(32 * 0.0012, rel=0.3)


def test_cost_of_rows_at_a_new_load_is_predicted_from_all_loads():
    """The difference between loads tells the cost of a row, however many steps the latest load had.

    At any single load all steps have the same number of rows, which tells nothing.
    """
    costs = CostModel()
    for load in (1, 2, 4):
        for _ in range(3000):
            costs.add(busy_step(load))
    for _ in range(3000):
        costs.add(busy_step(8))

    more_s = pass_s(costs, 8, 40, 200) - pass_s(costs, 8, 8, 200)
    assert more_s == pytest.approx(32 * 0.0012, rel=0.2)


def test_each_draft_token_of_a_head_costs_time_if_plain_rounds_are_overestimated():
    """A round without the head was never timed, and is expected to take longer than it does."""
    costs = CostModel()
    for place in range(600):
        num_drafted = 1 + place % 6
        costs.add(Sample(1, 0, 1, 100, is_streamed=True, target_s=0.010))
        costs.add(head_round(num_drafted, 0.010 + 0.0004 * num_drafted))

    assert head_s(costs, 1) == pytest.approx(0.0104, rel=0.03)
    assert head_s(costs, 6) == pytest.approx(0.0124, rel=0.03)


def test_stalls_hardly_change_expected_times():
    """One pass in 50 takes 100 times as long; it counts as MAX_OUTLIER times the expected time."""
    costs = CostModel()
    fill(costs, stall=0.02)

    assert pass_s(costs, 1, 4, 1000) < 1.35 * 0.0118
    assert MAX_OUTLIER < 100


def test_times_at_an_unseen_load_are_predicted_from_rows():
    """Forty requests in flight make passes of forty rows."""
    costs = CostModel()
    fill(costs)

    foretold_s = pass_s(costs, 40, 40, 1000, is_streamed=True)
    assert foretold_s == pytest.approx(0.010 + 40 * 0.0002, rel=0.25)
    # The calls of 40 requests' rounds cost an unknown time, which is assumed to be above 0.
    assert pass_s(costs, 40, 40, 1000) > foretold_s


def test_each_load_is_learned_by_itself():
    """Times with eight requests in flight do not change those with one."""
    costs = CostModel()
    fill(costs, load=1)
    fill(costs, load=8, seed=2)

    assert pass_s(costs, 8, 8, 1000) == pytest.approx(0.0126, rel=0.1)
    assert pass_s(costs, 1, 1, 1000) == pytest.approx(0.0112, rel=0.1)


def test_pace_without_speculation_is_that_of_steps_while_no_request_speculated():
    """This holds however long all requests speculate afterwards, in passes of twice the time."""
    costs = CostModel()
    assert not costs.has_baseline(4)
    for num_looping, num_samples in ((0, 200), (4, 3000)):
        for _ in range(num_samples):
            is_streamed = num_looping == 0
            seconds = 0.020 if is_streamed else 0.040
            costs.add(Sample(4, num_looping, 4 + 2 * num_looping, 500, is_streamed, seconds))

    assert costs.has_baseline(4)
    assert costs.plain_s(4, 500) == pytest.approx(0.020, rel=0.2)


def test_pace_without_speculation_depends_on_the_context():
    """A plain step after a long text takes longer, and a round there must be compared with it."""
    costs, rng = CostModel(), random.Random(4)
    for _ in range(400):
        context = rng.choice((100, 200, 4000))
        step_s = (0.010 + 0.002 * context / 1000) * rng.lognormvariate(0, 0.05)
        costs.add(Sample(1, 0, 1, context, is_streamed=True, target_s=step_s))

    assert costs.plain_s(1, 100) == pytest.approx(0.0102, rel=0.05)
    assert costs.plain_s(1, 4000) == pytest.approx(0.018, rel=0.05)


def test_pace_without_speculation_depends_on_the_requests_in_flight():
    """Five and eight requests are in one load bucket, but must be compared with their own pace."""
    costs, rng = CostModel(), random.Random(5)
    for _ in range(400):
        load = rng.choice((5, 8, 8, 8))
        step_s = (0.010 + 0.001 * load) * rng.lognormvariate(0, 0.05)
        costs.add(Sample(load, 0, load, 500, is_streamed=True, target_s=step_s))

    assert costs.plain_s(5, 500) == pytest.approx(0.015, rel=0.05)
    assert costs.plain_s(8, 500) == pytest.approx(0.018, rel=0.05)


def test_round_that_was_never_timed_costs_more_than_a_plain_step():
    """Its calls and its rows are assumed to take some time.

    If a head runs in each round, a round with a copy is never timed by itself.
    """
    costs = CostModel()
    for place in range(2000):
        step_s = 0.010 + 0.002 * (place % 200) / 1000
        costs.add(Sample(1, 0, 1, place % 200, is_streamed=True, target_s=step_s))

    assert 0.0105 < pass_s(costs, 1, 1, 100) < 0.0125
    more_s = pass_s(costs, 1, 5, 100) - pass_s(costs, 1, 1, 100)
    assert more_s == pytest.approx(4 * ROW_SHARE * 0.0102, rel=0.2)


def test_pace_without_speculation_is_measured_again(monkeypatch):
    """A pace measured in a bad moment is corrected step by step.

    This works even if all requests speculate otherwise.
    """
    monkeypatch.setattr(baselines, "AGAIN_AFTER", 256)
    costs = CostModel()

    def measure(seconds):
        while not costs.has_baseline(8):
            costs.add(Sample(8, 0, 8, 500, is_streamed=True, target_s=seconds))

    def speculate(num_rounds):
        for _ in range(num_rounds):
            costs.add(Sample(8, 8, 32, 500, is_streamed=False, target_s=0.060))

    measure(0.060)
    assert costs.plain_s(8, 500) == pytest.approx(0.060, rel=0.05)
    speculate(255)
    assert costs.has_baseline(8)
    speculate(1)
    assert not costs.has_baseline(8)
    for _ in range(3):
        measure(0.030)
        speculate(256)
    assert costs.plain_s(8, 500) == pytest.approx(0.035, rel=0.15)


def test_timed_rounds_stay_known_after_many_plain_steps():
    """Otherwise trials would be spent on them again."""
    costs = CostModel()
    for num_samples, is_streamed in ((16, False), (3000, True)):
        for _ in range(num_samples):
            costs.add(Sample(1, 0 if is_streamed else 1, 1, 500, is_streamed, 0.010))

    assert (costs.num_looped, costs.num_streamed) == (16, 3000)


def test_pace_without_speculation_is_known_even_if_some_request_always_speculates():
    """Plain steps of other requests count then, although a request speculates meanwhile.

    MANY_STEPS of them are needed at first, and ENOUGH_STEPS when the pace is measured again.
    """
    costs = CostModel()
    for _ in range(MANY_STEPS):
        assert not costs.has_baseline(4)
        costs.add(Sample(4, 1, 6, 500, is_streamed=True, target_s=0.020))

    assert costs.has_baseline(4)
    for _ in range(AGAIN_AFTER):
        costs.add(Sample(4, 3, 12, 500, is_streamed=False, target_s=0.030))
    num_waited = 0
    while not costs.has_baseline(4):
        costs.add(Sample(4, 1, 6, 500, is_streamed=True, target_s=0.020))
        num_waited += 1
    assert num_waited == ENOUGH_STEPS


def test_unknown_drafters_cost_nothing_so_that_they_are_tried():
    """As long as no pass was timed, `is_known` is false."""
    costs = CostModel()
    assert not costs.is_known
    assert costs.draft_s("draft", 1, 4) == 0.0
    assert costs.reading_s("head", 1000, is_head=True) == 0.0


def test_cost_of_reading_a_prompt_is_learned_for_each_drafter():
    """The cost of a head is the time by which the first round is longer with it."""
    costs, rng = CostModel(), random.Random(1)
    for _ in range(100):
        prompt = rng.randint(10, 4000)
        costs.add_prompt(prompt, 0.005 + 0.1 * prompt / 1000, has_head=False)
        costs.add_prompt(prompt, 0.006 + 0.13 * prompt / 1000, has_head=True)
        costs.add_first_draft("draft", prompt, 0.002 + 0.02 * prompt / 1000)

    assert costs.reading_s("head", 3000, is_head=True) == pytest.approx(0.091, rel=0.15)
    assert costs.reading_s("draft", 3000, is_head=False) == pytest.approx(0.062, rel=0.15)


@pytest.mark.parametrize("num_plain", [0, 1, 3])
def test_cost_of_a_prompt_itself_is_not_ascribed_to_a_head(num_plain):
    """Hardly any prompt was read without the head, so the data alone could not tell them apart."""
    costs, rng = CostModel(), random.Random(1)
    for number in range(40):
        prompt = rng.randint(100, 400)
        seconds = 0.005 + 0.5 * prompt / 1000
        costs.add_prompt(prompt, seconds, has_head=number >= num_plain)

    assert costs.reading_s("head", 200, is_head=True) < 0.1 * 0.105


@pytest.mark.parametrize("num_plain", [1, 40, 400])
def test_one_slow_prompt_hardly_affects_the_cost_of_a_head(num_plain):
    """A cold server takes three times as long for its first prompt, which a head reads too.

    Later prompts are read without the head.
    """
    costs = CostModel()
    costs.add_prompt(200, 0.3, has_head=True)
    for _ in range(num_plain):
        costs.add_prompt(200, 0.1, has_head=False)

    assert costs.reading_s("head", 200, is_head=True) < 0.06


def test_loads_are_grouped_by_powers_of_two():
    """Any number of requests in flight has a bucket."""
    assert [load_bucket(load) for load in (0, 1, 2, 3, 4, 5, 8, 9, 48)] == [
        0,
        0,
        1,
        2,
        2,
        3,
        3,
        4,
        6,
    ]
    assert load_bucket(10**9) == load_bucket(10**6)
