"""A head's guesses, beside copies, and left out where they do not pay."""

from __future__ import annotations

import numpy as np

from specdec.control.gain import GainMeter
from specdec.drafting.head import TREE_DEPTH, HeadDrafter, HeadOrCopy
from specdec.drafting.protocol import NO_PROPOSAL, Proposal
from tests.unit.scripted import make_round

CONTEXT = np.arange(5, dtype=np.int32)


class Copying:
    """Offers what it is given."""

    def __init__(self, tokens=()):
        self.tokens = tokens

    def propose(self, context, max_tokens):
        return Proposal(self.tokens, "lookup", 1) if self.tokens else NO_PROPOSAL

    def observe(self, confirmed):
        pass


def play(gain, num_rounds, *, tokens, drafted_s, plain_s=0.01):
    """One request; return how many rounds asked for guesses, and how many left the head out."""
    drafter = HeadOrCopy([Copying()], HeadDrafter("head", 2, 3), gain)
    num_asked = num_out = 0
    for _ in range(num_rounds):
        proposal = drafter.propose(CONTEXT, 100)
        num_asked += bool(proposal.num_next)
        num_out += proposal.num_next is None
        guessed = (7, 8, 9) if proposal.num_next else ()
        count = tokens if proposal.tokens else 1
        time = drafted_s if proposal.num_next else plain_s
        drafter.observe(
            make_round(
                range(count),
                drafted=len(proposal.tokens),
                drafter=proposal.drafter,
                target_s=time,
                next_drafts=guessed,
            )
        )
    return num_asked, num_out


def test_the_longer_offer_is_taken_and_the_head_reads_along():
    """A copy beats the head only by going on for longer; guesses are asked for with either."""
    copying = Copying((1, 2, 3))
    drafter = HeadOrCopy([copying], HeadDrafter("head", 2, 3), GainMeter("head"))
    first = drafter.propose(CONTEXT, 100)
    assert (first.tokens, first.num_next) == ((1, 2, 3), 0)  # The first token does not wait.

    drafter.observe(make_round((1,), drafted=3, drafter="lookup", next_drafts=()))
    assert drafter.propose(CONTEXT, 100).num_next == 3
    drafter.observe(make_round((1,), drafted=3, drafter="lookup", next_drafts=(7, 8, 9)))
    assert drafter.propose(CONTEXT, 100).tokens == (7, 8, 9)

    copying.tokens = (1, 2, 3, 4)
    longer = drafter.propose(CONTEXT, 100)
    assert (longer.tokens, longer.drafter) == ((1, 2, 3, 4), "lookup")
    assert longer.num_next is not None


def test_guesses_fit_what_may_still_be_said():
    """Nothing is offered or asked for behind the end of the answer."""
    drafter = HeadDrafter("head", 2, 3)
    drafter.observe(make_round((1,), next_drafts=(7, 8, 9)))

    assert drafter.propose(CONTEXT, 2).tokens == (7, 8)
    assert drafter.propose(CONTEXT, 2).num_next == 1
    assert drafter.propose(CONTEXT, 1).num_next == 0


def test_tree_fits_what_may_still_be_said():
    """The depth is limited, not the nodes; what is too deep is not offered."""
    drafter = HeadDrafter("head_tree", 2, 12, is_tree=True)
    assert (drafter.propose(CONTEXT, 100).num_next, drafter.propose(CONTEXT, 100).tokens) == (0, ())
    tree = {"next_drafts": (7, 8, 9, 5), "next_parents": (-1, -1, 0, 2)}
    drafter.observe(make_round((1,), **tree))

    wide = drafter.propose(CONTEXT, 100)
    assert (wide.tokens, wide.parents) == tuple(tree.values())
    assert (wide.num_next, wide.next_depth) == (12, TREE_DEPTH)
    narrow = drafter.propose(CONTEXT, 2)
    assert (narrow.tokens, narrow.parents) == ((7, 8, 9), (-1, -1, 0))
    assert (narrow.num_next, narrow.next_depth) == (12, 1)
    last = drafter.propose(CONTEXT, 1)
    assert (last.tokens, last.num_next, last.next_depth) == ((7, 8), 0, None)


def test_copy_is_longer_than_a_tree_is_deep():
    """Nodes beside each other do not go on for longer."""
    copying = Copying((1, 2))
    drafter = HeadOrCopy([copying], HeadDrafter("t", 2, 8, is_tree=True), GainMeter("t"))
    drafter.propose(CONTEXT, 100)
    tree = {"next_drafts": (7, 8, 9), "next_parents": (-1, -1, -1)}
    drafter.observe(make_round((1,), drafted=2, drafter="lookup", **tree))

    found = drafter.propose(CONTEXT, 100)
    assert (found.tokens, found.next_depth) == ((1, 2), TREE_DEPTH)


def test_head_that_pays_is_asked_nearly_always():
    """Two tokens for 1.3 times the time: plain rounds are few, and it is never left out."""
    gain = GainMeter("head")
    play(gain, 200, tokens=2, drafted_s=0.013)

    asked, out = play(gain, 200, tokens=2, drafted_s=0.013)

    assert gain.gain > 1.4
    assert asked > 190
    assert out == 0


def test_head_that_does_not_pay_is_left_out_and_tried_again():
    """One token for 1.3 times the time: requests run without it, but for a trial now and then."""
    gain = GainMeter("head")
    play(gain, 200, tokens=1, drafted_s=0.013)

    rounds = [play(gain, 50, tokens=1, drafted_s=0.013) for _ in range(320)]

    assert gain.gain < 1
    assert sum(asked for asked, _ in rounds) < 0.02 * 320 * 50
    assert sum(asked > 0 for asked, _ in rounds) >= 5
