"""What `specdec bench speed` makes of its measurements, and of prompts that are too short."""

import pytest

from loadtest.bench.prompting import TokenPrompt, lengthened
from loadtest.bench.speed_tables import Measurement, later, rate_of, ratio_of


def measurement(prompt_id, arm, num_tokens=9, num_first=1, first_s=1.0, last_s=3.0):
    """Return one answer."""
    return Measurement(prompt_id, "qa", arm, num_tokens, num_first, first_s, last_s, None)


def test_rates_count_what_came_in_their_time():
    """Of the whole request, and behind the first response without what that one had."""
    found = [measurement("a", "off"), measurement("b", "off", num_tokens=15, num_first=3)]

    assert rate_of(found) == pytest.approx(24 / 6)
    assert rate_of(found, later) == pytest.approx((8 + 12) / 4)


def test_ratio_has_an_interval_over_prompts():
    """Equal ratios leave no spread; unequal ones do, around the middle."""
    same = [measurement(n, arm, last_s=3.0 if arm == "off" else 1.5) for n in "abc" for arm in "x"]
    same += [measurement(n, "off") for n in "abc"]
    assert ratio_of(same, "x", "off") == "2.00 (2.00–2.00)"
    assert ratio_of([*same[1:], measurement("a", "x")], "x", "off").startswith("1.50 (1.00–2.00")


def test_prompts_are_lengthened_in_front():
    """The question stays at the end; what is long enough stays as it is."""
    prompts = [TokenPrompt(name, "qa", ids) for name, ids in (("a", (1, 2)), ("b", (3, 4, 5)))]

    longer = lengthened(prompts, 6)

    assert [each.token_ids for each in longer] == [(5, 3, 4, 5, 1, 2), (2, 1, 2, 3, 4, 5)]
    assert lengthened(prompts, 2) == tuple(prompts)
