"""Prompt lookup: where the context's end stood before, and what is offered from there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.control.choices import SHORT_COPY
from specdec.drafting.lookup import LONG_MATCH, LookupDrafter
from specdec.drafting.matching import MAX_MATCH, MIN_MATCH, longest_matches
from specdec.drafting.protocol import NO_PROPOSAL


def ids(*tokens):
    """Return token ids."""
    return np.asarray(tokens, dtype=np.int32)


def find_match(context):
    """Return the latest of the longest matches of the context in itself, or None."""
    ends, _ = longest_matches(context, context)
    return int(ends[-1]) if len(ends) else None


def longest_then_latest(context):
    """Find the match by trying every place and every length."""
    best, best_end = 0, None
    for end in range(MIN_MATCH, len(context)):
        matched = 0
        while (
            matched < min(end, MAX_MATCH)
            and context[end - 1 - matched] == context[len(context) - 1 - matched]
        ):
            matched += 1
        if matched >= MIN_MATCH and matched >= best:
            best, best_end = matched, end
    return best_end


@given(st.lists(st.integers(0, 2), max_size=40))
def test_match_is_the_longest_and_then_the_latest(context):
    """Equal to brute force on contexts that repeat themselves a lot."""
    assert find_match(ids(*context)) == longest_then_latest(context)


@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=4),
    st.integers(2, 30),
    st.lists(st.integers(0, 1), max_size=6),
)
def test_match_in_periodic_text(period, times, tail):
    """The same where matches are longer than the longest compared."""
    context = period * times + tail

    assert find_match(ids(*context)) == longest_then_latest(context)


@pytest.mark.parametrize(
    ("context", "end"),
    [
        ((), None),
        ((1,), None),
        ((1, 1), None),
        ((1, 2, 3, 2), None),  # one token matches: not enough
        ((1, 2, 3, 1, 2), 2),
        ((1, 1, 1), 2),  # a match may overlap the end that it matches
        ((5, 1, 2, 9, 4, 1, 2, 8, 5, 1, 2), 3),  # longer, though earlier
        ((1, 2, 9, 1, 2, 8, 1, 2), 5),  # as long, so the later one
    ],
)
def test_known_matches(context, end):
    """At least two tokens must match; longer wins, then later."""
    assert find_match(ids(*context)) == end


def drafter(num_tokens=4, max_tokens=6):
    """Return a drafter of so many guesses."""
    return LookupDrafter("lookup", 1, num_tokens, max_tokens)


@pytest.mark.parametrize(("most", "tokens"), [(9, (3, 4, 1, 2)), (3, (3, 4, 1)), (1, (3,))])
def test_what_followed_is_offered(most, tokens):
    """Up to the drafter's number, the loop's limit and the context's end, as plain integers."""
    proposal = drafter().propose(ids(1, 2, 3, 4, 1, 2), most)

    assert proposal.tokens == tokens
    assert {type(token) for token in proposal.tokens} == {int}
    assert (proposal.drafter, proposal.source) == ("lookup", 1)


@pytest.mark.parametrize(
    ("num_matching", "num_offered"),
    [
        (1, SHORT_COPY),
        (2, 4),
        (LONG_MATCH - 1, 4),
        (LONG_MATCH, 6),
        (MAX_MATCH + 3, 6),
    ],
)
def test_longer_matches_are_trusted_further(num_matching, num_offered):
    """One token with few guesses, a copy with the most."""
    text = list(range(100, 140))
    tail = text[20 - num_matching : 20]

    proposal = drafter().propose(ids(*text, 1, *tail), 9)

    assert proposal.tokens == tuple(text[20 : 20 + num_offered])


def test_a_request_for_few_guesses_gets_no_more():
    """Whatever matches."""
    for count in (1, 2):
        assert len(drafter(count, count).propose(ids(5, 6, 7, 8, 5), 9).tokens) == count


def test_no_match_offers_nothing():
    """Without a match the proposal is empty and nobody's."""
    assert drafter().propose(ids(1, 2, 3), 4) == NO_PROPOSAL
    assert drafter().propose(ids(), 4) == NO_PROPOSAL
