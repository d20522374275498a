"""Tests of the cost estimates, which learn times from rounds: of passes, drafts and prompts."""

from __future__ import annotations

import random
import time

import pytest

from specdec.steering.choices import COPY, OFF_CHOICE, Choice
from specdec.steering.costs import MAX_OUTLIER, CostEstimates
from specdec.steering.estimates import PRIOR_ROUNDS
from specdec.steering.steps import Step, load_bucket

NOW_S = time.time()


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
        seconds = 0.010 + 0.0002 * rows * load + 0.001 * context / 1000 - 0.001 * is_streamed
        seconds *= rng.lognormvariate(0, noise) * (100 if rng.random() < stall else 1)
        choice = OFF_CHOICE if is_streamed else Choice(COPY)
        if rows > 1 and rng.random() < 0.5:
            choice = Choice("draft", rows - 1)
            seconds += (0.001 + 0.002 * (rows - 1)) * rng.lognormvariate(0, noise)
        num_looping = 0 if is_streamed else load
        costs.add(Step(choice, load, num_looping, rows * load, context, load), seconds, NOW_S)


def all_do(choice, load=1, rows=1.0, context=100):
    """Return the step in which all requests in flight make this choice."""
    return Step(choice, load, 0, 0, context).with_drafter(choice, rows)


def seconds(costs, choice, load=1, rows=1.0, context=100):
    """Return the seconds that `costs` expects of such a step."""
    return costs.predict(all_do(choice, load, rows, context), NOW_S)[0]


def test_passes_and_drafts_are_learned():
    """Despite noise, expected times are right within 10 %."""
    costs = CostEstimates()
    fill(costs)

    assert seconds(costs, Choice(COPY), context=0) == pytest.approx(0.0102, rel=0.1)
    assert seconds(costs, Choice(COPY), rows=8, context=2000) == pytest.approx(0.0136, rel=0.1)
    assert seconds(costs, OFF_CHOICE, context=0) == pytest.approx(0.0092, rel=0.1)
    assert seconds(costs, Choice("draft", 4), rows=5, context=2000) == pytest.approx(0.022, rel=0.1)


def test_one_length_may_cost_more_than_the_line_through_the_others():
    """A length that was measured often is believed, whatever its neighbours cost."""
    costs = CostEstimates()
    times_s = {1: 0.010, 2: 0.020, 3: 0.014, 4: 0.016}
    for number in range(2000):
        length = 1 + number % 4
        choice = Choice("head", length)
        costs.add(all_do(choice, rows=1 + length), times_s[length], NOW_S)

    for length, expected_s in times_s.items():
        found = seconds(costs, Choice("head", length), rows=1 + length)
        assert found == pytest.approx(expected_s, rel=0.05)


def test_error_shrinks_with_each_step():
    """A choice that was never timed has a large standard error, one timed often a small one."""
    costs = CostEstimates()
    fill(costs, num_samples=400)
    for _ in range(400):
        costs.add(all_do(Choice("head", 3), rows=4), 0.012, NOW_S)

    known_s, known_error_s = costs.predict(all_do(Choice("head", 3), rows=4), NOW_S)
    new_s, new_error_s = costs.predict(all_do(Choice("tree", 3), rows=4), NOW_S)
    assert known_error_s < 0.05 * known_s
    assert new_error_s > 0.3 * new_s


def test_times_at_higher_loads_do_not_distort_those_of_one_request():
    """Each load has a line of its own; the one over all loads is only its prior."""
    costs, rng = CostEstimates(), random.Random(2)
    for load, step_s, row_s in ((1, 0.013, 0.001), (4, 0.016, 0.0013), (16, 0.030, 0.002)):
        for _ in range(600):
            rows = load * rng.randint(1, 5)
            time_s = (step_s + row_s * rows + 0.0017 * load) * rng.lognormvariate(0, 0.2)
            costs.add(Step(Choice(COPY), load, load, rows, 128), time_s, NOW_S)

    assert seconds(costs, Choice(COPY), rows=1, context=128) == pytest.approx(0.0157, rel=0.1)
    assert seconds(costs, Choice(COPY), rows=4, context=128) == pytest.approx(0.0187, rel=0.1)
    assert seconds(costs, Choice(COPY), load=16, context=128) == pytest.approx(0.0892, rel=0.15)


def test_steps_with_mixed_rows_tell_the_cost_of_rows():
    """One of eight requests drafts, and its rows vary; the others have one row each.

    Rounds in which all requests draft are predicted from them.
    """
    costs, rng = CostEstimates(), random.Random(3)
    for _ in range(4000):
        extra_rows = rng.randint(0, 6)
        time_s = (0.010 + 0.0012 * (8 + extra_rows)) * rng.lognormvariate(0, 0.1)
        costs.add(Step(Choice(COPY), 8, 1, 8 + extra_rows, 200), time_s, NOW_S)

    more_s = seconds(costs, Choice(COPY), 8, rows=5) - seconds(costs, Choice(COPY), 8, rows=1)
    assert more_s == pytest.approx(32 * 0.0012, rel=0.3)


def test_prompts_that_are_read_do_not_make_the_load_seem_slow():
    """Steps take 8 times as long while seven prompts are read; only the others count in full."""
    costs = CostEstimates()
    for number in range(600):
        num_reading = 7 * (number % 4 == 0)
        time_s = 0.030 + 0.030 * num_reading
        costs.add(Step(OFF_CHOICE, 8, 0, 8, 60, num_reading=num_reading), time_s, NOW_S)

    assert seconds(costs, OFF_CHOICE, 8) == pytest.approx(0.030, rel=0.1)


def test_speed_without_speculation_stays_known_while_all_requests_speculate():
    """This holds however long they do, in passes of twice the time."""
    costs = CostEstimates()
    for _ in range(200):
        costs.add(all_do(OFF_CHOICE, 4), 0.020, NOW_S)
    for _ in range(3000):
        costs.add(all_do(Choice("head", 2), 4, rows=3), 0.040, NOW_S)

    assert seconds(costs, OFF_CHOICE, 4) == pytest.approx(0.020, rel=0.05)
    assert costs.num_timed(OFF_CHOICE.drafter, 4, NOW_S) > 150


def test_speed_without_speculation_depends_on_context_and_load():
    """Requests five and eight are in one load bucket, but have different speeds."""
    costs, rng = CostEstimates(), random.Random(4)
    for _ in range(600):
        context, load = rng.choice((100, 200, 4000)), rng.choice((5, 8))
        time_s = (0.010 + 0.002 * context / 1000 + 0.001 * load) * rng.lognormvariate(0, 0.05)
        costs.add(all_do(OFF_CHOICE, load, context=context), time_s, NOW_S)

    assert seconds(costs, OFF_CHOICE, 5, context=100) == pytest.approx(0.0152, rel=0.05)
    assert seconds(costs, OFF_CHOICE, 8, context=4000) == pytest.approx(0.026, rel=0.05)


def test_round_that_was_never_timed_costs_more_than_a_plain_step():
    """Its calls and its rows are assumed to take some time."""
    costs = CostEstimates()
    for _ in range(2000):
        costs.add(all_do(OFF_CHOICE), 0.010, NOW_S)

    one_s, five_s = (seconds(costs, Choice(COPY), rows=rows) for rows in (1, 5))
    assert 0.0100 < one_s < 0.0110
    assert one_s + 0.0005 < five_s < 0.0125


def test_times_at_an_unseen_load_are_predicted_from_rows():
    """Forty requests in flight make passes of forty rows."""
    costs = CostEstimates()
    fill(costs)

    assert seconds(costs, OFF_CHOICE, 40, context=1000) == pytest.approx(0.018, rel=0.4)


def test_stalls_hardly_change_expected_times():
    """One pass in 50 takes 100 times as long; it counts as MAX_OUTLIER times the expected time."""
    costs = CostEstimates()
    fill(costs, stall=0.02)

    assert seconds(costs, Choice(COPY), rows=4, context=1000) < 1.35 * 0.0118
    assert MAX_OUTLIER < 100


def test_slow_steps_among_the_first_eight_hardly_change_expected_times():
    """A server's first answer may be short, and other programs may still start beside it."""
    costs, head = CostEstimates(), Choice("head", 3)
    for number in range(PRIOR_ROUNDS):
        costs.add(all_do(head, rows=4), 0.300 if number < 2 else 0.020, NOW_S)

    assert seconds(costs, head, rows=4) < 2 * 0.020


def test_times_of_a_busy_machine_are_forgotten_once_it_is_free():
    """They would make each drafter look slow that is not chosen now."""
    costs, head, tree = CostEstimates(), Choice("head", 3), Choice("tree", 8)
    for _ in range(40):
        costs.add(all_do(tree, rows=9), 0.300, NOW_S)
        costs.add(all_do(head, rows=4), 0.200, NOW_S)
    for _ in range(60):
        costs.add(all_do(head, rows=4), 0.020, NOW_S)

    assert seconds(costs, head, rows=4) == pytest.approx(0.020, rel=0.1)
    assert seconds(costs, tree, rows=9) < 0.040
    assert costs.num_timed("tree", 1, NOW_S) == 0


def test_each_load_finds_out_for_itself_that_the_machine_is_free():
    """Times of another load are kept, also if requests of both loads take turns."""
    costs, head = CostEstimates(), Choice("head", 3)
    for _ in range(40):
        costs.add(all_do(head, rows=4), 0.200, NOW_S)
        costs.add(all_do(head, 16, rows=4), 0.600, NOW_S)
    for _ in range(60):
        costs.add(all_do(head, rows=4), 0.020, NOW_S)
        costs.add(all_do(head, 16, rows=4), 0.600, NOW_S)

    assert seconds(costs, head, rows=4) == pytest.approx(0.020, rel=0.1)
    assert seconds(costs, head, 16, rows=4) == pytest.approx(0.600, rel=0.1)
    assert costs.num_timed("head", 16, NOW_S) > 90


def test_fast_drafter_does_not_make_the_others_times_doubtful():
    """Plain steps may take a quarter of the time of a tree's."""
    costs, tree = CostEstimates(), Choice("tree", 8)
    for _ in range(200):
        costs.add(all_do(tree, rows=9), 0.058, NOW_S)
    for _ in range(100):
        costs.add(all_do(OFF_CHOICE), 0.015, NOW_S)

    assert costs.num_timed("tree", 1, NOW_S) > 100
    assert seconds(costs, tree, rows=9) == pytest.approx(0.058, rel=0.1)


@pytest.mark.parametrize("num_steps", [2, 9, 16])
def test_responses_that_waited_for_their_reader_do_not_make_the_machine_seem_fast(num_steps):
    """After a pause of several steps, their responses are read at once."""
    costs = CostEstimates()
    for _ in range(10):
        for _ in range(20):
            costs.add(all_do(OFF_CHOICE), 0.010, NOW_S)
        costs.add(all_do(OFF_CHOICE), 0.010 * num_steps, NOW_S)
        for _ in range(num_steps - 1):
            costs.add(all_do(OFF_CHOICE), 0.00005, NOW_S)

    assert costs.num_timed("none", 1, NOW_S) > 150


def test_nothing_is_known_before_the_first_steps():
    """Reading a prompt is then expected to cost nothing."""
    costs = CostEstimates()
    assert not costs.is_known
    assert not costs.is_timed("draft")
    assert costs.reading_s("head", 1000, is_head=True) == 0.0


def test_cost_of_reading_a_prompt_is_learned_for_each_drafter():
    """The cost of a head is the time by which the first round is longer with it."""
    costs, rng = CostEstimates(), random.Random(1)
    for _ in range(100):
        prompt = rng.randint(10, 4000)
        costs.add_prompt(prompt, 0.005 + 0.1 * prompt / 1000, NOW_S, has_head=False)
        costs.add_prompt(prompt, 0.006 + 0.13 * prompt / 1000, NOW_S, has_head=True)
        costs.add_first_draft("draft", prompt, 0.002 + 0.02 * prompt / 1000, NOW_S)

    assert costs.reading_s("head", 3000, is_head=True) == pytest.approx(0.091, rel=0.2)
    assert costs.reading_s("draft", 3000, is_head=False) == pytest.approx(0.062, rel=0.15)


@pytest.mark.parametrize("num_plain", [0, 1, 3])
def test_cost_of_a_prompt_itself_is_not_ascribed_to_a_head(num_plain):
    """Hardly any prompt was read without the head, so the data alone could not tell them apart."""
    costs, rng = CostEstimates(), random.Random(1)
    for number in range(40):
        prompt = rng.randint(100, 400)
        time_s = 0.005 + 0.5 * prompt / 1000
        costs.add_prompt(prompt, time_s, NOW_S, has_head=number >= num_plain)

    assert costs.reading_s("head", 200, is_head=True) < 0.1 * 0.105


@pytest.mark.parametrize("num_plain", [1, 40, 400])
def test_one_slow_prompt_hardly_affects_the_cost_of_a_head(num_plain):
    """A cold server takes three times as long for its first prompt, which a head reads too.

    Later prompts are read without the head.
    """
    costs = CostEstimates()
    costs.add_prompt(200, 0.3, NOW_S, has_head=True)
    for _ in range(num_plain):
        costs.add_prompt(200, 0.1, NOW_S, has_head=False)

    assert costs.reading_s("head", 200, is_head=True) < 0.06


def test_loads_are_grouped_by_powers_of_two():
    """Any number of requests in flight has a bucket."""
    found = [load_bucket(load) for load in (0, 1, 2, 3, 4, 5, 8, 9, 48)]
    assert found == [0, 0, 1, 2, 2, 3, 3, 4, 6]


def test_rare_drafter_does_not_look_slow():
    """Two rounds of 25 ms among 2,000 without the drafter: the prior costs no more than a share."""
    costs, rng = CostEstimates(), random.Random(1)
    for number in range(2000):
        is_drafted = number in {100, 200}
        choice = Choice("draft", 3) if is_drafted else Choice(COPY)
        rows = 4 if is_drafted else rng.randint(1, 8)
        time_s = 0.025 if is_drafted else 0.010 + 0.0002 * rows
        costs.add(Step(choice, 1, 1, rows, 100), time_s * rng.lognormvariate(0, 0.1), NOW_S)

    assert 0.010 < seconds(costs, Choice("draft", 3), rows=4) < 0.030
