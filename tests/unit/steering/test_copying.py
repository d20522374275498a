"""Tests of estimating what the copy drafters would have proposed in a text.

Each token counts once for all copies and once for long ones, whichever drafter proposed it.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.drafting.copying.lookup import LookupDrafter
from specdec.steering.acceptance_estimates import AcceptanceEstimates, DraftResult
from specdec.steering.choices import COPIES, LONG_COPIES, SHORT_COPY
from specdec.steering.copying import CopyWatch, copy_result

TEXTS = st.lists(st.integers(0, 3), min_size=2, max_size=60)


def finding(text, end=None):
    """Return a function that finds the proposals of prompt lookup in `text`.

    For a position it returns how many tokens prompt lookup would have proposed there, and how many
    of these the text confirms before `end`. `end` is None for the end of the text.
    """
    drafter, tokens = LookupDrafter("lookup", 1, 4, 7), np.asarray(text, dtype=np.int32)

    def find(position):
        proposed = drafter.propose(tokens[:position], 100).tokens
        following = text[position : (len(text) if end is None else end)]
        is_accepted = [a == b for a, b in zip(proposed, following, strict=False)]
        return [(len(proposed), [*is_accepted, False].index(False))]

    return find


def counted(results):
    """Return sums for all and for long copies: tokens, copies, draft and accepted tokens."""
    found = {COPIES: Counter(), LONG_COPIES: Counter()}
    for each in results:
        tokens = each.num_accepted + 1 if each.depth else each.num_rounds
        found[each.drafter].update(
            tokens=tokens,
            copies=int(each.depth > 0),
            drafted=each.num_draft_tokens,
            accepted=each.num_accepted,
        )
    return found


@given(TEXTS, st.lists(st.integers(1, 20), min_size=1, max_size=12))
def test_looking_back_often_counts_the_same_as_once(text, steps):
    """Each token counts once, and each copy with its full length.

    A copy that reaches the end of the text is left out, because its full length is not known yet.
    If a copy ends exactly there, the target's next token is counted with it in advance.
    """
    often, once, results, end = CopyWatch(), CopyWatch(), [], 1
    often.begin(end)
    once.begin(end)
    for step in steps:
        end = min(len(text), end + step)
        results += often.look_back(end, 1000, finding(text, end))

    assert counted(results) == counted(once.look_back(end, 1000, finding(text, end)))
    num_reported = counted(results)[COPIES]["tokens"]
    assert num_reported <= end
    if num_reported < end - 1:
        ((num_copied, num_accepted),) = finding(text, end)(1 + num_reported)
        assert num_copied > num_accepted == end - 1 - num_reported


@given(TEXTS)
def test_rounds_with_copies_count_the_same_as_looking_back(text):
    """The counts are the same if a request uses all copies, and if it uses none.

    In the first case they come from its rounds, in the second from looking back at the text.
    """
    find, watch = finding(text), CopyWatch()
    watch.begin(1)
    looked = watch.look_back(len(text), 1000, find)
    position, results = 1, []
    while position < len(text):
        ((num_copied, num_accepted),) = find(position)
        if num_copied > num_accepted == len(text) - position:
            break
        results.append(copy_result(COPIES, num_accepted + 1, num_copied, num_accepted))
        position += num_accepted + 1
    assert counted(results)[COPIES] == counted(looked)[COPIES]


def test_first_copy_drafter_with_a_long_enough_copy_counts():
    """As beside a head's draft, a copy that is too short gives way to the next drafter's copy."""
    watch = CopyWatch()
    watch.begin(10)
    looked = counted(watch.look_back(13, 80, lambda _: [(SHORT_COPY, 1), (7, 0)]))
    assert looked[COPIES] == {"tokens": 2, "copies": 1, "drafted": SHORT_COPY, "accepted": 1}
    assert looked[LONG_COPIES] == {"tokens": 3, "copies": 3, "drafted": 21, "accepted": 0}


def test_tokens_from_too_long_ago_are_left_out():
    """They are not counted later either."""
    watch = CopyWatch()
    watch.begin(1)
    for end, num_reported in ((60, 20), (61, 1), (90, 20)):
        results = watch.look_back(end, 20, lambda _: [])
        assert counted(results)[COPIES]["tokens"] == num_reported


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_result_for_several_rounds_counts_like_one_for_each(share):
    """A result for several rounds without a copy gives the same estimate as one for each."""
    one_by_one, together, rng = AcceptanceEstimates(), AcceptanceEstimates(), random.Random(1)
    for _ in range(300):
        num_without = int(rng.expovariate(share / (1 - share)))
        for _ in range(num_without):
            one_by_one.add("code", "greedy", DraftResult(COPIES, 0, 0, 0), 0.0)
        if num_without:
            result = DraftResult(COPIES, 0, 0, 0, num_rounds=num_without)
            together.add("code", "greedy", result, 0.0)
        for estimates in (one_by_one, together):
            estimates.add("code", "greedy", DraftResult(COPIES, 4, 4, 2), 0.0)
    first, second = (
        estimates.estimate("code", COPIES, "greedy", 0.0, 0) for estimates in (one_by_one, together)
    )
    assert second.proposes == pytest.approx(first.proposes, abs=0.01)
    assert second.mean_accepted == pytest.approx(2, abs=0.05)
