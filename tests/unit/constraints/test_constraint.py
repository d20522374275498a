"""Which tokens may follow an answer, for a vocabulary that can be enumerated."""

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.constraints.small_vocabulary import END, TOKENS, constraint

PATTERNS = {
    'start: "a" "b"* "a"': "ab*a",
    'start: ("ab" | "b")+': "(ab|b)+",
    'start: "a"? "b" "a"*': "a?ba*",
}
"""Grammars, and regular expressions for the same texts."""
ANSWERS = [answer for size in range(4) for answer in product(range(len(TOKENS) - 1), repeat=size)]
LONGEST = 6


def text_of(answer):
    """Return the text of tokens."""
    return b"".join(TOKENS[token] for token in answer).decode()


def begins_a_match(pattern, text):
    """Say whether some text that matches begins with this one."""
    return any(
        re.fullmatch(pattern, text + "".join(rest))
        for size in range(LONGEST)
        for rest in product("ab", repeat=size)
    )


def ids(answer):
    """Return tokens as an array."""
    return np.asarray(answer, dtype=np.int32)


@pytest.mark.parametrize("grammar", PATTERNS)
def test_a_token_is_allowed_if_some_answer_goes_on_with_it(grammar):
    """The end is allowed exactly where the text so far matches."""
    pattern, constrained = PATTERNS[grammar], constraint(grammar)
    for answer in ANSWERS:
        text, found = text_of(answer), constrained.after(ids(answer))

        assert (found is not None) == begins_a_match(pattern, text)
        if found is None:
            continue
        for token in range(END):
            may_follow = begins_a_match(pattern, text + TOKENS[token].decode())
            assert found.forbidden[token] != may_follow
        assert found.forbidden[END]
        assert found.may_end == bool(re.fullmatch(pattern, text))


@given(st.sampled_from(sorted(PATTERNS)), st.lists(st.sampled_from(ANSWERS), max_size=12))
def test_questions_in_any_order_get_the_same_answers(grammar, order):
    """A constraint goes back over rejected tokens, so it remembers nothing of them."""
    walked = constraint(grammar)
    for answer in order:
        found, fresh = walked.after(ids(answer)), constraint(grammar).after(ids(answer))

        assert (found is None) == (fresh is None)
        if found is not None:
            assert found.forbidden.tolist() == fresh.forbidden.tolist()
            assert found.may_end == fresh.may_end


def test_counts_the_draft_tokens_that_may_follow():
    """Counting does not move the constraint."""
    constrained = constraint('start: "a" "b"* "a"')

    assert constrained.num_allowed(ids([0]), [1, 1, 0, 0]) == 3
    assert constrained.num_allowed(ids([]), [1]) == 0
    assert constrained.num_allowed(ids([1]), [0]) == 0, "the answer itself is not allowed"
    assert constrained.num_allowed(ids([0]), [2]) == 0


def test_forced_tokens_are_in_the_tokenizers_spelling():
    """`ab` is one token, and what follows it is not forced."""
    constrained = constraint('start: "b" "abab" ("a" | "b")')

    assert constrained.forced(ids([1])) == [2, 2]
    assert constrained.forced(ids([1, 2, 2])) == []
    assert constrained.forced(ids([0])) == []


def test_long_answers_outgrow_the_buffer():
    """The constraint keeps as many tokens as the answer has."""
    constrained = constraint('start: "a"*')
    answer = ids([0] * 500)

    assert constrained.after(answer).may_end
    assert constrained.after(answer[:3]).may_end
    assert constrained.after(ids([0] * 499 + [1])) is None
