"""Tests of prompt lookup: the match of the context's end, and the tokens proposed after it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.drafting.copying.lookup import LONG_MATCH, LookupDrafter
from specdec.drafting.copying.matching import MAX_MATCH, MIN_MATCH, longest_matches
from specdec.drafting.protocol import NO_PROPOSAL
from specdec.steering.choices import SHORT_COPY


def ids(*tokens):
    """Return token ids."""
    return np.asarray(tokens, dtype=np.int32)


def find_match(context):
    """Return the end of the latest of the longest matches of the context in itself, or None."""
    ends, _ = longest_matches(context, context)
    return int(ends[-1]) if len(ends) else None


def longest_then_latest(context):
    """Find the match by trying every position and every length."""
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
    """It equals the brute-force search on contexts with many repetitions."""
    assert find_match(ids(*context)) == longest_then_latest(context)


@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=4),
    st.integers(2, 30),
    st.lists(st.integers(0, 1), max_size=6),
)
def test_match_in_periodic_text(period, times, tail):
    """The same holds where matches are longer than the longest length that is compared."""
    context = period * times + tail

    assert find_match(ids(*context)) == longest_then_latest(context)


@pytest.mark.parametrize(
    ("context", "end"),
    [
        ((), None),
        ((1,), None),
        ((1, 1), None),
        ((1, 2, 3, 2), None),  # a single token is too short a match
        ((1, 2, 3, 1, 2), 2),
        ((1, 1, 1), 2),  # a match may overlap the end that it matches
        ((5, 1, 2, 9, 4, 1, 2, 8, 5, 1, 2), 3),  # a longer match wins over a later one
        ((1, 2, 9, 1, 2, 8, 1, 2), 5),  # of equally long matches the latest wins
    ],
)
def test_match_is_the_longest_then_the_latest_of_two_or_more_tokens(context, end):
    """At least two tokens must match. A longer match wins, and then a later one."""
    assert find_match(ids(*context)) == end


def drafter(num_tokens=4, max_tokens=6):
    """Return a drafter with these numbers of draft tokens, for short and for long matches."""
    return LookupDrafter("lookup", 1, num_tokens, max_tokens)


@pytest.mark.parametrize(("most", "tokens"), [(9, (3, 4, 1, 2)), (3, (3, 4, 1)), (1, (3,))])
def test_proposes_the_tokens_after_the_match(most, tokens):
    """Drafter, loop and end of the context limit their number; they are plain integers."""
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
def test_longer_matches_give_longer_drafts(num_matching, num_offered):
    """A match of one token gives a short draft, a long copied passage the longest."""
    text = list(range(100, 140))
    tail = text[20 - num_matching : 20]

    proposal = drafter().propose(ids(*text, 1, *tail), 9)

    assert proposal.tokens == tuple(text[20 : 20 + num_offered])


def test_a_low_limit_holds_for_any_match():
    """The drafter's own limits are kept, whatever matches."""
    for count in (1, 2):
        assert len(drafter(count, count).propose(ids(5, 6, 7, 8, 5), 9).tokens) == count


def test_without_a_match_there_is_no_proposal():
    """The proposal then is empty and names no drafter."""
    assert drafter().propose(ids(1, 2, 3), 4) == NO_PROPOSAL
    assert drafter().propose(ids(), 4) == NO_PROPOSAL
