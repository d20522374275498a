"""Tests of copy drafters: from a prediction, the request's text, or the tenant's earlier ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.drafting.copying import suffix
from specdec.drafting.copying.prediction import PredictionDrafter
from specdec.drafting.copying.suffix import Memory, SuffixDrafter
from specdec.loop import Context, speculate
from specdec.rounds import Round
from tests.unit.scripted import PROMPT, KnowingTarget


def ids(*tokens):
    """Return token ids as an array [n] int32."""
    return np.asarray(tokens, dtype=np.int32)


def rounds_of(answer, prediction, num_tokens=4):
    """Return the rounds of a request whose target generates `answer`, drafted from `prediction`."""
    drafter = PredictionDrafter("prediction", 4, num_tokens, ids(*prediction), len(PROMPT))
    context = Context(ids(*PROMPT), len(answer))
    return list(speculate(context, KnowingTarget(answer), drafter))


def test_right_prediction_is_copied_to_its_end():
    """All draft tokens are accepted, in each round."""
    answer = tuple(range(20, 44))

    rounds = rounds_of(answer, answer)

    assert all(each.num_draft_tokens == each.num_accepted for each in rounds)
    # Each round confirms 4 draft tokens and the target's own token.
    assert len(rounds) == 5


def test_prediction_is_found_again_after_a_deviation():
    """A replaced token costs two draft tokens; copying goes on once two tokens match again."""
    prediction = tuple(range(20, 50))
    answer = (*prediction[:7], 99, *prediction[8:])

    rounds = rounds_of(answer, prediction)

    assert sum((each.tokens for each in rounds), ()) == answer
    assert sum(each.num_draft_tokens - each.num_accepted for each in rounds) == 2
    assert sum(each.num_accepted for each in rounds) >= 20


def test_wrong_prediction_costs_one_draft():
    """After a rejection nothing is proposed until the answer matches again, which it never does."""
    rounds = rounds_of(tuple(range(20, 44)), tuple(range(60, 84)))

    assert sum(each.num_draft_tokens for each in rounds) == 4
    assert sum(each.num_accepted for each in rounds) == 0


@given(
    st.lists(st.integers(20, 22), min_size=1, max_size=30),
    st.lists(st.integers(20, 22), max_size=30),
)
def test_no_prediction_changes_the_answer(answer, prediction):
    """The prediction may be right, wrong, too short, too long or empty."""
    rounds = rounds_of(tuple(answer), tuple(prediction))

    assert sum((each.tokens for each in rounds), ()) == tuple(answer)


def propose(context, remembered=(), most=8):
    """Return the draft tokens of a suffix drafter; `most` is its limit."""
    return SuffixDrafter("suffix", 3, most, ids(*remembered)).propose(ids(*context), 99).tokens


def test_most_frequent_continuation_is_proposed():
    """Two of three matches continue with 5, which outweighs the third, though that is later."""
    assert propose((1, 2, 5, 6, 9, 1, 2, 5, 6, 8, 1, 2, 7, 4, 1, 2))[:2] == (5, 6)


def test_longer_match_decides_between_the_texts():
    """Earlier texts of the tenant are used only if they match more than the request's own text."""
    context = (1, 2, 5, 9, 3, 1, 2)

    assert propose(context, remembered=(4, 3, 1, 2, 6, 7, suffix.SEPARATOR))[0] == 6
    assert propose(context, remembered=(4, 8, 1, 2, 6, 7, suffix.SEPARATOR))[0] == 5


def test_draft_ends_with_the_text_it_is_copied_from():
    """A draft stops before the separator, which is no token."""
    assert propose((3, 1, 2), remembered=(3, 1, 2, 6, suffix.SEPARATOR, 7, 7)) == (6,)


def test_short_matches_give_short_drafts():
    """A draft has up to two tokens for each token of the match, and up to the drafter's limit."""
    text = (1, 2, *range(10, 30))

    assert len(propose((1, 2), remembered=text, most=16)) == 4
    assert len(propose((9, 1, 2), remembered=(9, *text), most=16)) == 6


def test_tenants_never_share_texts():
    """A tenant's texts are in no other memory, nor in that of requests without a tenant."""
    memory = Memory()
    memory.learn("a", ids(1, 2, 3))
    memory.learn(None, ids(4, 5))

    assert memory.text("a").tolist() == [1, 2, 3, suffix.SEPARATOR]
    assert memory.text("b").tolist() == []
    assert memory.text(None).tolist() == [4, 5, suffix.SEPARATOR]


def test_memory_is_bounded(monkeypatch):
    """A tenant's oldest texts are dropped first, and the tenants that were served longest ago."""
    monkeypatch.setattr(suffix, "MAX_TENANT_TOKENS", 10)
    monkeypatch.setattr(suffix, "MAX_TENANTS", 3)
    memory = Memory()
    for number in range(5):
        memory.learn("a", ids(*[number] * 3))
    memory.learn("long", ids(*range(50)))

    assert memory.text("a").tolist() == [3, 3, 3, -1, 4, 4, 4, -1]
    assert memory.text("long").tolist() == [*range(41, 50), -1]
    for name in "bcd":
        memory.learn(name, ids(1))
    assert memory.text("a").size == 0
    assert len(memory._joined) <= 3, "names that only asked are remembered"


@pytest.mark.parametrize("drafter", ["prediction", "suffix"])
def test_round_of_another_drafter_leaves_the_next_proposal_unchanged(drafter):
    """All drafters are told of each round, also of those in which another one proposed.

    The next proposal depends on the confirmed tokens, not on which drafter proposed them.
    """
    asked, only_told = (
        {
            "prediction": PredictionDrafter("prediction", 4, 4, ids(1, 2, 3, 4, 5), 2),
            "suffix": SuffixDrafter("suffix", 3, 4, ids(8, 9, 1, 2, 3, 4, 5, suffix.SEPARATOR)),
        }[drafter]
        for _ in range(2)
    )

    assert asked.propose(ids(8, 9), 3).tokens
    proposals = []
    for each in (asked, only_told):
        each.observe(Round((1, 2, 3), 2, 2, "draft", (2, 2), False, 0.0, 0.0))
        proposals.append(each.propose(ids(8, 9, 1, 2, 3), 4).tokens)

    assert proposals == [(4, 5), (4, 5)]
