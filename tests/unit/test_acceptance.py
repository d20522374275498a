"""Verification by equality, and the count that the orchestrator derives from tokens alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.acceptance.exact import verify_chain
from specdec.engines.protocol import Draft, Verification, num_accepted_of

TOKENS = st.integers(0, 3)


@pytest.mark.parametrize(
    ("draft", "choices", "tokens", "num_accepted"),
    [
        ((1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4), 3),
        ((1, 2, 3), (1, 2, 9, 4), (1, 2, 9), 2),
        ((1, 2, 3), (9, 2, 3, 4), (9,), 0),
        ((), (5,), (5,), 0),
        ((7, 7), (7, 8, 7), (7, 8), 1),
    ],
)
def test_drafts_stand_up_to_the_first_disagreement(draft, choices, tokens, num_accepted):
    """All right, wrong in the middle, wrong at once, no draft, right behind wrong."""
    assert verify_chain(draft, choices) == (tokens, num_accepted)


@given(st.lists(TOKENS, max_size=8).flatmap(
    lambda draft: st.tuples(
        st.just(draft), st.lists(TOKENS, min_size=len(draft) + 1, max_size=len(draft) + 1)
    )
))  # fmt: skip
def test_tokens_alone_tell_how_many_were_accepted(pair):
    """What the engine counts inside, the orchestrator finds again from draft and result."""
    draft, choices = pair

    verdict = verify_chain(draft, choices)

    verification = Verification(verdict.tokens, ended=False)
    assert num_accepted_of(Draft(tuple(draft)), verification) == verdict.num_accepted
    assert verdict.tokens == tuple(choices[: verdict.num_accepted + 1])
    if verdict.num_accepted < len(draft):
        assert draft[verdict.num_accepted] != choices[verdict.num_accepted]


@given(st.lists(TOKENS, max_size=8), st.lists(TOKENS, max_size=8))
def test_accepted_is_the_longest_common_beginning(draft, tokens):
    """Also of a result that the end token or the length limit has cut."""
    num_accepted = num_accepted_of(Draft(tuple(draft)), Verification(tuple(tokens), ended=False))

    assert draft[:num_accepted] == tokens[:num_accepted]
    assert draft[num_accepted : num_accepted + 1] != tokens[num_accepted : num_accepted + 1] or (
        num_accepted == len(draft) == len(tokens)
    )
