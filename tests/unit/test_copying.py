"""What copying finds is told of every text once, for all depths, whoever says it."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.control.acceptance_book import AcceptanceBook, Offer
from specdec.control.choices import COPY, Lead, copies_beyond
from specdec.control.copying import CopyWatch, depths_of, told
from specdec.drafting.lookup import LookupDrafter

LEADS = (
    Lead("head", (1, 2, 3, 4), is_head=True),
    Lead("head_tree", (8,), 5, is_head=True),
    Lead("draft", (1, 2, 7)),
)
DEPTHS = (0, 3, 4, 5)
TEXTS = st.lists(st.integers(0, 3), min_size=2, max_size=60)


def finding(text, end=None):
    """What prompt lookup offers at a place of the text up to `end`, and how much was said there."""
    drafter, tokens = LookupDrafter("lookup", 1, 4, 7), np.asarray(text, dtype=np.int32)

    def find(place):
        offered = drafter.propose(tokens[:place], 100).tokens
        said = text[place : (len(text) if end is None else end)]
        right = [a == b for a, b in zip(offered, said, strict=False)]
        return [(len(offered), [*right, False].index(False))]

    return find


def counted(offers):
    """By depth: tokens told, copies, guesses of them, guesses that stood."""
    found = {copies_beyond(depth): Counter() for depth in DEPTHS}
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
    """A draft engine is not asked where anything is copied; beside any head short copies wait."""
    assert depths_of(LEADS) == DEPTHS
    assert depths_of(()) == (0,)


@given(TEXTS, st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_it_does_not_matter_how_often_is_looked_back(text, stretches):
    """Every token is told once for every depth, and a copy as long as it is.

    But for one that reaches the end of the text, of which nobody knows how far it goes; with one
    that has stood just so far the next token of the target is told already.
    """
    often, once, offers, end = CopyWatch(LEADS[2:]), CopyWatch(LEADS[2:]), [], 1
    often.begin(end)
    once.begin(end)
    for stretch in stretches:
        end = min(len(text), end + stretch)
        offers += often.look_back(end, 1000, finding(text, end))

    assert counted(offers) == counted(once.look_back(end, 1000, finding(text, end)))
    num_told = counted(offers)[COPY]["tokens"]
    assert num_told <= end
    if num_told < end - 1:
        ((num_copied, num_right),) = finding(text, end)(1 + num_told)
        assert num_copied > num_right == end - 1 - num_told


@given(TEXTS, st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_rounds_of_a_head_tell_the_same_however_often_is_looked_back(text, stretches):
    """At every depth: copies are looked for where its rounds began."""
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
def test_rounds_tell_the_same_as_looking_back(text):
    """Who copies wherever there is a copy, and who says all without: the same is learned."""
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


def test_the_first_who_copies_far_enough_is_followed():
    """As in a round: beside a head a short copy leaves the place to a longer one behind it."""
    watch = CopyWatch(LEADS[:1])
    watch.begin(10)
    looked = counted(watch.look_back(13, 80, lambda _: [(2, 1), (7, 0)]))
    assert looked[COPY] == {"tokens": 2, "copies": 1, "drafted": 2, "right": 1}
    assert looked[copies_beyond(3)]["drafted"] == 21
    assert looked[copies_beyond(4)]["right"] == 0


@pytest.mark.parametrize(("is_beside_head", "num_found"), [(True, 0), (False, 1)])
def test_copies_beside_a_head_are_looked_for_where_its_rounds_begin(is_beside_head, num_found):
    """What it would have said anyhow is no copy; without it, where they are likely to."""
    watch = CopyWatch(LEADS[:1])
    watch.begin(10)
    if is_beside_head:
        watch.said(10, 3)
    looked = counted(watch.look_back(13, 80, lambda place: [(7, 0)] if place == 12 else []))
    assert looked[COPY] == {"tokens": 3, "copies": 1, "drafted": 7, "right": 0}
    assert looked[copies_beyond(4)]["copies"] == num_found
    assert looked[copies_beyond(4)]["tokens"] == 3


def test_what_is_too_long_ago_is_left_out():
    """And what was left out is not told later."""
    watch = CopyWatch(())
    watch.begin(1)
    for end, told_there in ((60, 20), (61, 1), (90, 20)):
        offers = watch.look_back(end, 20, lambda _: [])
        assert counted(offers)[COPY]["tokens"] == told_there


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_share_of_the_rounds_is_that_of_the_text(share):
    """However many rounds an offer stands for, they weigh the same."""
    one_by_one, together, rng = AcceptanceBook(), AcceptanceBook(), random.Random(1)
    for _ in range(300):
        num_without = int(rng.expovariate(share / (1 - share)))
        for _ in range(num_without):
            one_by_one.add("code", "greedy", Offer(COPY, 0, 0, 0), 0.0)
        if num_without:
            together.add("code", "greedy", Offer(COPY, 0, 0, 0, num_rounds=num_without), 0.0)
        for book in (one_by_one, together):
            book.add("code", "greedy", Offer(COPY, 4, 4, 2), 0.0)
    first, second = (
        book.estimate("code", COPY, "greedy", 0.0, 0) for book in (one_by_one, together)
    )
    assert second.offers == pytest.approx(first.offers, abs=0.01)
    assert second.mean_accepted == pytest.approx(2, abs=0.05)
