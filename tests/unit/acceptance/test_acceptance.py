"""Tests of the verification mode `exact`, and of counting accepted tokens from its result."""

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
def test_accepts_draft_tokens_up_to_the_first_disagreement(draft, choices, tokens, num_accepted):
    """The result is the accepted draft tokens and one token of the target's own.

    The cases: all accepted; the last one rejected; the first one rejected, although the next would
    match; no draft; a repeated token of which only the first is accepted.
    """
    assert verify_chain(draft, choices) == (tokens, num_accepted)


@given(st.lists(TOKENS, max_size=8).flatmap(
    lambda draft: st.tuples(
        st.just(draft), st.lists(TOKENS, min_size=len(draft) + 1, max_size=len(draft) + 1)
    )
))  # fmt: skip
def test_tokens_alone_tell_how_many_were_accepted(pair):
    """The orchestrator derives the engine's count of accepted tokens from draft and result."""
    draft, choices = pair

    verdict = verify_chain(draft, choices)

    verification = Verification(verdict.tokens, ended=False)
    assert num_accepted_of(Draft(tuple(draft)), verification) == verdict.num_accepted
    assert verdict.tokens == tuple(choices[: verdict.num_accepted + 1])
    if verdict.num_accepted < len(draft):
        assert draft[verdict.num_accepted] != choices[verdict.num_accepted]


@given(st.lists(TOKENS, max_size=8), st.lists(TOKENS, max_size=8))
def test_accepted_tokens_are_the_longest_common_prefix(draft, tokens):
    """This holds even if the end token or the length limit has cut the result."""
    num_accepted = num_accepted_of(Draft(tuple(draft)), Verification(tuple(tokens), ended=False))

    assert draft[:num_accepted] == tokens[:num_accepted]
    assert draft[num_accepted : num_accepted + 1] != tokens[num_accepted : num_accepted + 1] or (
        num_accepted == len(draft) == len(tokens)
    )
