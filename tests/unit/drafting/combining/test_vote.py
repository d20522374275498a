"""Drafters that vote: the majority's token at each position, and ties by probability."""

import math

from hypothesis import given
from hypothesis import strategies as st

from specdec.drafting.combining.vote import elect
from specdec.drafting.protocol import NO_PROPOSAL, Proposal


def ballot(tokens, source, probability=0.5):
    """Return a proposal whose drafter gives each of its tokens this probability."""
    log_probs = (math.log(probability),) * len(tokens)
    return Proposal(tuple(tokens), f"draft{source}", source, log_probs=log_probs)


def test_majority_wins_at_each_position_separately():
    """Two drafters outvote one, whichever they are, however high the one's probability is."""
    elected = elect([ballot((1, 2, 3), 1, 0.9), ballot((1, 5, 6), 2), ballot((4, 5, 3), 3)], "vote")

    assert elected.tokens == (1, 5, 3)
    assert elected.sources == (1, 2, 1)
    assert elected.sources_of((1, 5)) == (1, 2)


def test_ties_go_to_the_larger_summed_probability():
    """One against one, the higher probability wins; two against two, the higher sum."""
    assert elect([ballot((1,), 1, 0.3), ballot((2,), 2, 0.6)], "vote").tokens == (2,)
    pairs = [ballot((1,), 1, 0.3), ballot((2,), 2, 0.6), ballot((1,), 3, 0.5), ballot((2,), 4, 0.1)]
    assert elect(pairs, "vote").tokens == (1,)


def test_full_ties_go_by_order_and_ended_proposals_do_not_vote():
    """A proposal has no vote after its end; without any proposal the vote proposes nothing."""
    elected = elect([ballot((1,), 1), ballot((2, 7, 8), 2), NO_PROPOSAL], "vote")
    assert elected.tokens == (1, 7, 8)
    assert elect([NO_PROPOSAL, NO_PROPOSAL], "vote") == NO_PROPOSAL


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=5))
def test_every_elected_token_was_proposed_there_by_its_source(chains):
    """No token is made up, and the result is as long as the longest proposal."""
    elected = elect([ballot(chain, 1 + n) for n, chain in enumerate(chains)], "vote")

    assert len(elected.tokens) == max(map(len, chains))
    for position, (token, source) in enumerate(zip(elected.tokens, elected.sources, strict=True)):
        assert chains[source - 1][position] == token
