"""The speculation statistics of one request, compared with counts of single tokens."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.serving.metrics.statistics import RoundTimes, summarize
from tests.unit.scripted import make_round

TIMES = RoundTimes(2, 0.5, 0.1, 0.3, 0.08, 0.28)


@st.composite
def rounds(draw):
    """Draw rounds as the loop makes them: accepted ≤ drafted, at most one token of the target's."""
    made = []
    for _ in range(draw(st.integers(1, 8))):
        drafted = draw(st.integers(0, 5))
        accepted = draw(st.integers(0, drafted))
        drafter = draw(st.sampled_from(["lookup", "draft"])) if drafted else None
        tokens = range(accepted + draw(st.integers(0, 1)))
        made.append(make_round(tokens, drafted=drafted, accepted=accepted, drafter=drafter))
    return made


@given(rounds(), st.integers(0, 60))
def test_counts_are_those_of_the_emitted_tokens(made, limit):
    """Every figure equals a count over single tokens, up to where the client's answer was cut."""
    emitted = [
        (number, index < each.num_accepted)
        for number, each in enumerate(made)
        for index in range(len(each.tokens))
    ][:limit]
    accepted_in = [
        sum(1 for at, was_drafted in emitted if at == number and was_drafted)
        for number in range(len(made))
    ]
    steps = [number for number, each in enumerate(made) if each.num_draft_tokens]

    summary = summarize(made, len(emitted))

    assert summary.num_rounds_with_draft == len(steps)
    assert summary.num_draft_tokens == sum(each.num_draft_tokens for each in made)
    assert summary.num_accepted_tokens == sum(accepted_in)
    histogram = summary.acceptance_histogram
    assert list(histogram) == [
        sum(1 for number in steps if accepted_in[number] == count)
        for count in range(len(histogram))
    ]
    assert sum(histogram) == summary.num_rounds_with_draft
    assert sum(n * count for n, count in enumerate(histogram)) == summary.num_accepted_tokens
    for name, *counts in summary.per_drafter:
        own = [number for number in steps if made[number].drafter == name]
        assert counts == [
            len(own),
            sum(made[number].num_draft_tokens for number in own),
            sum(accepted_in[number] for number in own),
        ]
    assert sum(part[1] for part in summary.per_drafter) == summary.num_rounds_with_draft


def test_round_cut_by_a_stop_text_counts_only_emitted_tokens_as_accepted():
    """Draft tokens after the stop text still count as drafted."""
    made = [
        make_round(range(5), drafted=4, accepted=4, drafter="draft"),
        make_round(range(5), drafted=4, accepted=4, drafter="draft"),
    ]

    summary = summarize(made, num_sent=7)

    assert summary.num_draft_tokens == 8
    assert summary.num_accepted_tokens == 4 + 2
    assert summary.acceptance_histogram == (0, 0, 1, 0, 1)


def test_names_and_formulas_are_those_of_vllm():
    """The mean length counts the target's own token, and the parts by drafter add up."""
    made = [
        make_round(range(3), drafted=4, accepted=2, drafter="draft"),
        make_round(range(1)),
        make_round(range(8), drafted=7, accepted=7, drafter="lookup"),
    ]

    figures = json.loads(summarize(made, num_sent=12).to_json(TIMES))

    assert figures.pop("mean_acceptance_length") == pytest.approx(1 + 9 / 2)
    assert figures.pop("draft_acceptance_rate") == pytest.approx(9 / 11)
    assert figures.pop("round_times")["target_engine_s"] == 0.28
    parts = figures.pop("drafters")
    assert (
        figures.items()
        >= {
            "acceptance_histogram": [0, 0, 1, 0, 0, 0, 0, 1],
            "acceptance_histogram_by_draft_length": {
                "4": [0, 0, 1, 0, 0],
                "7": [0, 0, 0, 0, 0, 0, 0, 1],
            },
            "num_spec_steps": 2,
            "num_draft_tokens": 11,
            "num_accepted_draft_tokens": 9,
        }.items()
    )
    for name in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens"):
        assert sum(part[name] for part in parts.values()) == figures[name]


def test_request_without_drafts():
    """Without draft tokens the rate is 0 and the mean length 1, without a division by zero."""
    summary = summarize([make_round()] * 3, num_sent=3)

    assert (summary.acceptance_rate, summary.mean_acceptance_length) == (0.0, 1.0)
    assert summary.acceptance_histogram == ()
