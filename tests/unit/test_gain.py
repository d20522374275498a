"""A draft that does not pay is switched off by measurement, and on again by measurement."""

import pytest

from specdec.control.gain import MIN_ROUNDS, PLAIN_EVERY, RETRY_EVERY, GainMeter
from tests.unit.scripted import make_round


def simulate(meter, num_rounds, tokens_per_round, *, draft_s=0.01, target_s=0.01):
    """Run rounds as the meter decides; return how many of them drafted."""
    num_drafted = 0
    for _ in range(num_rounds):
        if meter.should_draft():
            num_drafted += 1
            tokens = range(tokens_per_round)
            meter.observe(
                make_round(tokens, drafted=4, drafter="draft", draft_s=draft_s, target_s=target_s)
            )
        else:
            meter.observe(make_round(target_s=target_s))
    return num_drafted


def test_meter_measures_both_sides_before_it_decides():
    """Until both kinds of round are known there is no gain, and no kind is starved."""
    meter = GainMeter("draft")

    num_drafted = simulate(meter, 2 * MIN_ROUNDS + 2, tokens_per_round=2)

    assert MIN_ROUNDS <= num_drafted <= MIN_ROUNDS + 2
    assert meter.gain == pytest.approx(2 / 0.02 * 0.01)


def test_draft_that_pays_is_used_nearly_always():
    """Three tokens for the time of two: gain 1.5, with a plain round now and then to compare."""
    meter = GainMeter("draft")
    simulate(meter, 3 * MIN_ROUNDS, tokens_per_round=3)

    num_drafted = simulate(meter, 10 * PLAIN_EVERY, tokens_per_round=3)

    assert meter.gain == pytest.approx(1.5)
    assert num_drafted == 9 * PLAIN_EVERY + PLAIN_EVERY - 10


def test_draft_that_does_not_pay_is_left_out():
    """One token for the time of two: it is tried now and then, and costs next to nothing."""
    meter = GainMeter("draft")
    simulate(meter, 3 * MIN_ROUNDS, tokens_per_round=1)

    num_drafted = simulate(meter, 10 * RETRY_EVERY, tokens_per_round=1)

    assert meter.gain == pytest.approx(0.5)
    assert num_drafted == 10


def test_draft_that_starts_to_pay_is_switched_on_again_and_off_again():
    """The averages forget: a change of the traffic changes the decision, in both directions."""
    meter = GainMeter("draft")
    simulate(meter, 1000, tokens_per_round=1)
    assert meter.gain < 1

    simulate(meter, 100 * RETRY_EVERY, tokens_per_round=4)
    assert meter.gain > 1
    assert simulate(meter, PLAIN_EVERY, tokens_per_round=4) == PLAIN_EVERY - 1

    simulate(meter, 1000, tokens_per_round=1)
    assert meter.gain < 1


def test_meter_ignores_the_rounds_of_other_drafters():
    """Lookup's free guesses must not make the draft model look good."""
    meter = GainMeter("draft")
    for _ in range(2 * MIN_ROUNDS):
        meter.observe(make_round(range(8), drafted=7, accepted=7, drafter="lookup"))
        meter.observe(make_round())

    assert meter.gain is None
