"""Drafters that copy: from a prediction, from this text, from what others of the tenant said."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.drafting import suffix
from specdec.drafting.prediction import PredictionDrafter
from specdec.drafting.suffix import Memory, SuffixDrafter
from specdec.loop import Context, speculate
from specdec.rounds import Round
from tests.unit.scripted import PROMPT, KnowingTarget


def ids(*tokens):
    """Return token ids."""
    return np.asarray(tokens, dtype=np.int32)


def rounds_of(answer, prediction, num_tokens=4):
    """Return the rounds of an answer that a prediction drafts for."""
    drafter = PredictionDrafter("prediction", 4, num_tokens, ids(*prediction), len(PROMPT))
    context = Context(ids(*PROMPT), len(answer))
    return list(speculate(context, KnowingTarget(answer), drafter))


def test_right_prediction_is_copied_to_its_end():
    """Every drafted token stands, round after round."""
    answer = tuple(range(20, 44))

    rounds = rounds_of(answer, answer)

    assert sum(each.num_drafted for each in rounds) == sum(each.num_accepted for each in rounds)
    assert len(rounds) == 5  # 4 + 1 a round


def test_prediction_is_met_again_after_a_change():
    """A replaced word costs one round of drafts; two copied tokens later the copying goes on."""
    prediction = tuple(range(20, 50))
    answer = (*prediction[:7], 99, *prediction[8:])

    rounds = rounds_of(answer, prediction)

    assert sum((each.tokens for each in rounds), ()) == answer
    assert sum(each.num_drafted - each.num_accepted for each in rounds) == 2
    assert sum(each.num_accepted for each in rounds) >= 20


def test_wrong_prediction_offers_little():
    """After the first miss nothing is offered until the text is met, which it never is."""
    rounds = rounds_of(tuple(range(20, 44)), tuple(range(60, 84)))

    assert sum(each.num_drafted for each in rounds) == 4
    assert sum(each.num_accepted for each in rounds) == 0


@given(
    st.lists(st.integers(20, 22), min_size=1, max_size=30),
    st.lists(st.integers(20, 22), max_size=30),
)
def test_any_prediction_leaves_the_answer_alone(answer, prediction):
    """Right, wrong, shorter, longer, empty."""
    rounds = rounds_of(tuple(answer), tuple(prediction))

    assert sum((each.tokens for each in rounds), ()) == tuple(answer)


def propose(context, remembered=(), most=8):
    """Return what a suffix drafter offers."""
    return SuffixDrafter("suffix", 3, most, ids(*remembered)).propose(ids(*context), 99).tokens


def test_most_frequent_continuation_is_offered():
    """Two of three matches went on with 5: the third, though later, is outvoted."""
    assert propose((1, 2, 5, 6, 9, 1, 2, 5, 6, 8, 1, 2, 7, 4, 1, 2))[:2] == (5, 6)


def test_longer_match_decides_between_the_texts():
    """What others said is used where it matches more than the request's own text."""
    context = (1, 2, 5, 9, 3, 1, 2)

    assert propose(context, remembered=(4, 3, 1, 2, 6, 7, suffix.SEPARATOR))[0] == 6
    assert propose(context, remembered=(4, 8, 1, 2, 6, 7, suffix.SEPARATOR))[0] == 5


def test_guess_ends_with_the_text_it_is_copied_from():
    """The separator is no token."""
    assert propose((3, 1, 2), remembered=(3, 1, 2, 6, suffix.SEPARATOR, 7, 7)) == (6,)


def test_short_matches_are_trusted_with_little():
    """Two tokens a matched token, up to the drafter's number."""
    text = (1, 2, *range(10, 30))

    assert len(propose((1, 2), remembered=text, most=16)) == 4
    assert len(propose((9, 1, 2), remembered=(9, *text), most=16)) == 6


def test_tenants_never_meet():
    """What one tenant said is not in another's memory, nor in that of those without one."""
    memory = Memory()
    memory.learn("a", ids(1, 2, 3))
    memory.learn(None, ids(4, 5))

    assert memory.text("a").tolist() == [1, 2, 3, suffix.SEPARATOR]
    assert memory.text("b").tolist() == []
    assert memory.text(None).tolist() == [4, 5, suffix.SEPARATOR]


def test_memory_is_bounded(monkeypatch):
    """The oldest texts go first, and the tenants that were served longest ago."""
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
def test_observing_a_foreign_round_is_harmless(drafter):
    """Rounds that another drafter made are told to all."""
    each = {
        "prediction": PredictionDrafter("prediction", 4, 4, ids(1, 2, 3), 0),
        "suffix": SuffixDrafter("suffix", 3, 4, ids()),
    }[drafter]

    each.observe(Round((9,), 0, 0, None, (), False, 0.0, 0.0))
