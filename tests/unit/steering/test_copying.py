"""Tests of estimating what the copy drafters would have proposed in a text.

Each token counts once for each depth, whichever drafter proposed it.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.drafting.lookup import LookupDrafter
from specdec.steering.acceptance_estimates import AcceptanceEstimates, DraftResult
from specdec.steering.choices import COPY, EstimatedDrafter, Lead
from specdec.steering.copying import CopyWatch, depths_of, told

LEADS = (
    Lead("head", (1, 2, 3, 4), is_head=True),
    Lead("head_tree", (8,), 5, is_head=True),
    Lead("draft", (1, 2, 7)),
)
DEPTHS = (0, 3, 4, 5)
TEXTS = st.lists(st.integers(0, 3), min_size=2, max_size=60)


def finding(text, end=None):
    """Return a function that finds the proposals of prompt lookup in `text`.

    For a position it returns how many tokens prompt lookup would have proposed there, and how many
    of these the text confirms before `end`. `end` is None for the end of the text.
    """
    drafter, tokens = LookupDrafter("lookup", 1, 4, 7), np.asarray(text, dtype=np.int32)

    def find(place):
        offered = drafter.propose(tokens[:place], 100).tokens
        said = text[place : (len(text) if end is None else end)]
        right = [a == b for a, b in zip(offered, said, strict=False)]
        return [(len(offered), [*right, False].index(False))]

    return find


def counted(offers):
    """Return sums over `offers` by depth: tokens, copies, draft tokens, and accepted ones."""
    found = {EstimatedDrafter(COPY, depth): Counter() for depth in DEPTHS}
    for each in offers:
        tokens = each.num_accepted + 1 if each.depth else each.num_rounds
        found[each.drafter].update(
            tokens=tokens,
            copies=int(each.depth > 0),
            drafted=each.num_drafted,
            right=each.num_accepted,
        )
    return found


def test_depths_are_those_of_the_heads():
    """Depth 0 means all copies: a draft model is not asked in rounds with a copy.

    With a head, copies are used only if they are longer than its draft, and than SHORT_COPY.
    """
    assert depths_of(LEADS) == DEPTHS
    assert depths_of(()) == (0,)


@given(TEXTS, st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_looking_back_often_counts_the_same_as_once(text, stretches):
    """Each token counts once for each depth, and each copy with its full length.

    A copy that reaches the end of the text is left out, because its full length is not known yet.
    If a copy ends exactly there, the target's next token is counted with it in advance.
    """
    often, once, offers, end = CopyWatch(LEADS[2:]), CopyWatch(LEADS[2:]), [], 1
    often.begin(end)
    once.begin(end)
    for stretch in stretches:
        end = min(len(text), end + stretch)
        offers += often.look_back(end, 1000, finding(text, end))

    assert counted(offers) == counted(once.look_back(end, 1000, finding(text, end)))
    num_told = counted(offers)[EstimatedDrafter(COPY)]["tokens"]
    assert num_told <= end
    if num_told < end - 1:
        ((num_copied, num_right),) = finding(text, end)(1 + num_told)
        assert num_copied > num_right == end - 1 - num_told


@given(TEXTS, st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_looking_back_often_at_rounds_of_a_head_counts_the_same_as_once(text, stretches):
    """This holds at each depth. Copies are looked for at the positions where rounds began."""
    often, once, offers = CopyWatch(LEADS), CopyWatch(LEADS), []
    end = 1
    for watch in (often, once):
        watch.begin(end)
    for stretch in stretches:
        if end + stretch > len(text):
            break
        for watch in (often, once):
            watch.said(end, stretch)
        end += stretch
        offers += often.look_back(end, 1000, finding(text, end))
    assert counted(offers) == counted(once.look_back(end, 1000, finding(text, end)))


@given(TEXTS)
def test_rounds_with_copies_count_the_same_as_looking_back(text):
    """The counts are the same if a request uses all copies, and if it uses none.

    In the first case they come from its rounds, in the second from looking back at the text.
    """
    find, alone = finding(text), CopyWatch(())
    alone.begin(1)
    looked = alone.look_back(len(text), 1000, find)
    place, offers = 1, []
    while place < len(text):
        ((num_copied, num_right),) = find(place)
        if num_copied > num_right == len(text) - place:
            break
        offers.append(told(0, num_right + 1, num_copied, num_right))
        place += num_right + 1
    assert counted(offers) == counted(looked)


def test_first_copy_drafter_with_a_long_enough_copy_counts():
    """As in a round with a head, a copy that is too short gives way to the next drafter's copy."""
    watch = CopyWatch(LEADS[:1])
    watch.begin(10)
    looked = counted(watch.look_back(13, 80, lambda _: [(2, 1), (7, 0)]))
    assert looked[EstimatedDrafter(COPY)] == {"tokens": 2, "copies": 1, "drafted": 2, "right": 1}
    assert looked[EstimatedDrafter(COPY, 3)]["drafted"] == 21
    assert looked[EstimatedDrafter(COPY, 4)]["right"] == 0


@pytest.mark.parametrize(("is_beside_head", "num_found"), [(True, 0), (False, 1)])
def test_copies_are_looked_for_where_rounds_of_a_head_began(is_beside_head, num_found):
    """A copy of tokens that the head's round confirmed anyhow does not count.

    In a text without a head, rounds are assumed to begin every HEAD_TOKENS tokens.
    """
    watch = CopyWatch(LEADS[:1])
    watch.begin(10)
    if is_beside_head:
        watch.said(10, 3)
    looked = counted(watch.look_back(13, 80, lambda place: [(7, 0)] if place == 12 else []))
    assert looked[EstimatedDrafter(COPY)] == {"tokens": 3, "copies": 1, "drafted": 7, "right": 0}
    assert looked[EstimatedDrafter(COPY, 4)]["copies"] == num_found
    assert looked[EstimatedDrafter(COPY, 4)]["tokens"] == 3


def test_tokens_from_too_long_ago_are_left_out():
    """They are not counted later either."""
    watch = CopyWatch(())
    watch.begin(1)
    for end, told_there in ((60, 20), (61, 1), (90, 20)):
        offers = watch.look_back(end, 20, lambda _: [])
        assert counted(offers)[EstimatedDrafter(COPY)]["tokens"] == told_there


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_offer_for_several_rounds_counts_like_one_for_each(share):
    """One offer for several rounds without a copy gives the same estimate as one for each round."""
    one_by_one, together, rng = AcceptanceEstimates(), AcceptanceEstimates(), random.Random(1)
    for _ in range(300):
        num_without = int(rng.expovariate(share / (1 - share)))
        for _ in range(num_without):
            one_by_one.add("code", "greedy", DraftResult(EstimatedDrafter(COPY), 0, 0, 0), 0.0)
        if num_without:
            together.add(
                "code",
                "greedy",
                DraftResult(EstimatedDrafter(COPY), 0, 0, 0, num_rounds=num_without),
                0.0,
            )
        for book in (one_by_one, together):
            book.add("code", "greedy", DraftResult(EstimatedDrafter(COPY), 4, 4, 2), 0.0)
    first, second = (
        book.estimate("code", EstimatedDrafter(COPY), "greedy", 0.0, 0)
        for book in (one_by_one, together)
    )
    assert second.offers == pytest.approx(first.offers, abs=0.01)
    assert second.mean_accepted == pytest.approx(2, abs=0.05)
