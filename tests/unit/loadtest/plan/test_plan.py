"""Tests of `specdec plan`: its figures, and a published guide's worked examples and errors."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.estimates.formulas import (
    acceptance_rate,
    alpha_of_rate,
    expected_tokens,
    speed_up,
)
from specdec.loadtest.kit.guide import NUM_DRAFT_TOKENS, TASKS
from specdec.loadtest.plan.choosing import (
    DraftConditions,
    recommend,
)
from specdec.loadtest.plan.cli import main
from specdec.loadtest.plan.costs import Costs, answer_time
from specdec.loadtest.plan.tables import Question, break_even

FLAT = Costs({1: 1.0}, draft_ms=0.1)


# The guide's worked examples.


def test_twelve_tokens_at_three_a_round():
    """4 passes and 16 draft steps, each a sixth of a target step, take 6.7 steps instead of 12."""
    costs = Costs({1: 1.0}, draft_ms=1 / 6)

    taken = answer_time(12, 3.0, 4, costs.round_ms(1))

    assert (taken.num_passes, taken.num_draft_steps, taken.plain_ms) == (4, 16, 12.0)
    assert taken.num_draft_steps * costs.draft_ms == pytest.approx(2.7, abs=0.05)
    assert taken.speculative_ms == pytest.approx(6.7, abs=0.05)


@pytest.mark.parametrize(("tokens_per_round", "num_passes"), [(2.5, 8), (4, 5)])
def test_twenty_tokens_take_fewer_passes_with_more_tokens_a_round(tokens_per_round, num_passes):
    """20 tokens take 8 passes at 2.5 tokens a round, and 5 at 4."""
    assert answer_time(20, tokens_per_round, 4, FLAT.round_ms(1)).num_passes == num_passes


def test_five_hundred_and_twelve_tokens():
    """At 45 and 5 ms, 512 tokens take 23 s without speculation, and 10.4 s at 3.2 tokens a round.

    The guide's 8 s count only one of the four draft tokens.
    """
    costs = Costs({1: 45.0}, draft_ms=5.0)

    ours = answer_time(512, 3.2, 4, costs.round_ms(1))
    theirs = answer_time(512, 3.2, 1, costs.round_ms(1))

    assert ours.plain_ms / 1000 == pytest.approx(23.0, abs=0.05)
    assert ours.num_passes == 160
    assert theirs.speculative_ms / 1000 == pytest.approx(8.0)
    assert ours.speculative_ms / 1000 == pytest.approx(10.4)


def test_tasks_of_the_guide_on_our_terms():
    """The guide's α of 0.75 to 0.85 for code is α̂ 0.89 to 0.94; E is above each of its gains."""
    assert str(TASKS["code_generation"].conditional_acceptance) == "0.89–0.94"

    for stated in TASKS.values():
        for rate, gain in zip(
            (stated.acceptance_rate.low, stated.acceptance_rate.high),
            (stated.speed_up.low, stated.speed_up.high),
            strict=True,
        ):
            alpha = alpha_of_rate(rate, NUM_DRAFT_TOKENS)
            assert expected_tokens(alpha, NUM_DRAFT_TOKENS) > gain


def test_eight_tenths_do_not_give_four_to_five_tokens():
    """The guide promises 4 to 5 tokens a pass at α = 0.8.

    By its own α, k = 4 gives 4.2; α̂ = 0.8 gives 3.4.
    """
    assert expected_tokens(alpha_of_rate(0.8, 4), 4) == pytest.approx(4.2)
    assert expected_tokens(0.8, 4) == pytest.approx(3.36, abs=0.005)


def test_slow_down_of_a_long_draft():
    """α = 0.5, k = 8 and c = 0.2 give 0.77 ×."""
    costs = Costs({1: 1.0}, draft_ms=0.2)

    assert speed_up(0.5, 8, costs.round_ms(1)) == pytest.approx(0.77, abs=0.005)


# Costs and loads.


def test_a_pass_between_and_beyond_its_known_rows():
    """Times lie on straight lines between and after the known rows; a single one holds for all."""
    costs = Costs({1: 10.0, 5: 12.0, 9: 20.0}, draft_ms=1.0, overhead_ms=0.5)

    assert [costs.verify_ms(rows) for rows in (1, 3, 5, 7, 11)] == [10, 11, 12, 16, 24]
    assert FLAT.verify_ms(100) == 1.0
    assert costs.round_ms(1)(0) == 10
    assert costs.round_ms(1)(4) == 4 * 1.0 + 12 + 0.5


@given(st.floats(0.05, 0.95), st.floats(1.0, 40.0))
def test_more_load_never_gives_a_longer_best_draft(alpha, slope_ms):
    """If rows cost time, the best k and its gain fall as the batch grows."""
    costs = Costs({1: 10.0 + slope_ms, 101: 10.0 + 101 * slope_ms}, draft_ms=1.0)
    best = [Question((alpha,) * 8, costs).best(batch) for batch in (1, 4, 16, 64)]

    assert [each.num_draft_tokens for each in best] == sorted(
        (each.num_draft_tokens for each in best), reverse=True
    )
    assert all(
        later.speed_up <= earlier.speed_up + 1e-9 for earlier, later in itertools.pairwise(best)
    )


def test_break_even_is_the_cost_of_a_draft_token():
    """A draft of one token pays from α = c on (Leviathan); if nothing pays, the result is 1."""
    assert break_even(Question((0.5,) * 8, FLAT), 1) == pytest.approx(0.1, abs=1e-6)
    dear = Costs({1: 1.0}, draft_ms=5.0)
    assert break_even(Question((0.5,) * 8, dear), 1) == pytest.approx(1.0)


# Kinds of draft.


@pytest.mark.parametrize(
    ("known", "kind", "reason"),
    [
        ({"target_b": 70, "draft_b": 7}, "draft model", "10 × smaller"),
        ({"target_b": 70, "draft_b": 30}, "EAGLE-3 head", "43% of the target, above 30%"),
        ({"target_b": 1, "draft_b": 0.03}, "EAGLE-3 head", "30M is below 50M"),
        ({"target_b": 8}, "EAGLE-3 head", "no smaller model at hand"),
        ({"target_b": 8, "can_train": False}, "measure them", "Medusa too"),
        (
            {"target_b": 8, "can_train": False, "is_text_repeated": True},
            "copy drafters",
            "copies cost nothing",
        ),
        (
            {"target_b": 70, "draft_b": 7, "memory_gb": 150},
            "a smaller draft model, or this one in INT8",
            "14 GB, 10 GB are left: at most 5B, or 7 GB in INT8",
        ),
        (
            {"target_b": 70, "draft_b": 7, "memory_gb": 140},
            "EAGLE-3 head",
            "no room for another model",
        ),
        (
            {"target_b": 8, "draft_b": 0.8, "has_same_tokenizer": False},
            "draft model",
            "compare the ids of a probe text",
        ),
    ],
)
def test_each_situation_gets_a_kind_of_draft_with_its_reason(known, kind, reason):
    """Each situation gets a kind of draft, with the figure that decides it."""
    found = recommend(DraftConditions(**known))

    assert kind in found.kind
    assert any(reason in each for each in found.reasons), found.reasons


# The command.


def test_command_shows_the_choice(capsys):
    """The best k is marked, and named with its speed-up."""
    assert main(["--alpha", "0.7", "--cost", "0.1"]) == 0

    out = capsys.readouterr().out
    assert "| **4** | 2.77  | 0.44 " in out
    assert "Best: k = 4, 1.98 × plain steps." in out


def test_command_takes_every_notion_of_acceptance(capsys):
    """α̂ = 0.8, accepted ÷ drafted = 0.54 and τ = 3.69, all at k = 5, give the same answer."""
    rate = acceptance_rate(0.8, 5)
    answers = []
    for notion in (["--alpha", "0.8"], ["--rate", repr(rate)], ["--tau", repr(1 + 5 * rate)]):
        main([*notion, "--at-k", "5"])
        answers.append(capsys.readouterr().out)

    assert len(set(answers)) == 1
    assert "α̂ 0.800" in answers[0]


def test_command_shows_and_draws_several_loads(tmp_path, capsys):
    """For several batch sizes it prints the best choice of each, and draws a picture."""
    file = tmp_path / "plan.png"

    costs = ["--pass-ms", "1:11", "8:13", "16:16", "--draft-ms", "2"]
    main(["--alphas", "0.8", "0.7", "0.6", *costs, "--batch", "1", "16", "--plot", str(file)])

    assert "requests in a pass" in capsys.readouterr().out
    assert file.read_bytes().startswith(b"\x89PNG")


def test_command_without_an_acceptance_shows_the_guide(capsys):
    """It shows the guide's ten tasks: as stated, and at the given costs."""
    main(["--cost", "0.1"])

    assert "| code generation    | 0.75–0.85 " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--alpha", "1.3"], "from 0 to 1, not 1.3"),
        (["--tau", "7"], "from 1 to 5, not 7"),
        (["--alpha", "0.5", "--draft-ms", "-1"], "0 ms or more, not -1"),
        (["--plot", "x.png"], "a plot needs an acceptance"),
        (["--target-params", "0"], "more than 0 parameters, not 0"),
        (["--alpha", "0.5", "--rate", "0.5"], "not allowed with"),
    ],
)
def test_questions_without_sense_are_refused(argv, message, capsys):
    """The exit status is 2, and the message names the limit and the value given."""
    with pytest.raises(SystemExit) as ended:
        main(argv)

    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_rounds_are_paid_in_full():
    """A last round that needs only one of its three tokens costs as much as the others."""
    taken = answer_time(13, 3.0, 4, FLAT.round_ms(1))

    assert taken.num_passes == math.ceil(13 / 3)
    assert taken.speculative_ms == pytest.approx(5 * 1.4)
