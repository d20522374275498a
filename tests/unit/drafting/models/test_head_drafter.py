"""Tests that a head's draft, chain or tree, fits into the rest of the answer."""

from __future__ import annotations

import numpy as np

from specdec.drafting.models.head import TREE_DEPTH, HeadDrafter, HeadShape
from tests.unit.scripted import make_round

CONTEXT = np.arange(5, dtype=np.int32)


def test_chain_fits_into_the_rest_of_the_answer():
    """No token after the answer's end is proposed, or asked for with the next round."""
    drafter = HeadDrafter(HeadShape("head", 2, 3))
    drafter.observe(make_round((1,), next_drafts=(7, 8, 9)))

    assert drafter.propose(CONTEXT, 2).tokens == (7, 8)
    assert drafter.propose(CONTEXT, 2).num_next == 1
    assert drafter.propose(CONTEXT, 1).num_next == 0


def test_tree_fits_into_the_rest_of_the_answer():
    """The answer's end limits the depth of the tree, not its number of nodes."""
    drafter = HeadDrafter(HeadShape("head_tree", 2, 12, is_tree=True))
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
