"""Tests of the rounds that travel beside an engine's tokens."""

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from specdec.round_records import (
    DraftingReport,
    DraftRecord,
    ExpectedRounds,
    RoundRecord,
    UnreadRounds,
)

RECORDS = st.builds(
    lambda num_accepted, num_more, draft_s: RoundRecord(
        num_accepted + 1, num_accepted + num_more, "lookup", (1,) * num_accepted, draft_s
    ),
    st.integers(0, 8),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.25]),
)


def with_positions(rounds):
    """Return the records, each with the number of tokens before it."""
    firsts = itertools.accumulate((each.num_tokens for each in rounds), initial=0)
    return [replace(each, first=first) for each, first in zip(rounds, firsts, strict=False)]


@given(st.lists(RECORDS, max_size=6), st.sampled_from([None, {"choice": None}]))
def test_report_is_read_as_it_was_written(rounds, task):
    """The JSON text loses nothing."""
    report = DraftingReport(tuple(rounds), task, (("suffix", "internal"),))
    assert DraftingReport.from_text(report.to_text()) == report


@given(st.lists(RECORDS, min_size=1, max_size=6), st.data())
def test_rounds_cover_exactly_the_tokens_that_came(rounds, data):
    """Rounds are taken whole, in order; the last one may be cut, or stand for unknown ones."""
    unread = UnreadRounds()
    for each in with_positions(rounds):
        unread.add(each)
    num_tokens = data.draw(st.integers(0, sum(each.num_tokens for each in rounds) + 3))
    taken = unread.take(range(num_tokens), ended=False)
    assert sum(each.num_tokens for each in taken) == num_tokens
    assert all(len(each.accepted_sources) <= each.num_tokens for each in taken)
    assert [each.num_draft_tokens for each in taken[:-1]] == [
        each.num_draft_tokens for each in rounds[: max(0, len(taken) - 1)]
    ]


@given(st.lists(st.tuples(RECORDS, st.booleans()), max_size=8), st.data())
def test_lost_records_shift_no_other_round(rounds, data):
    """Tokens whose record is lost count as the target's own; all other rounds are whole."""
    records = with_positions([record for record, _ in rounds])
    kept = [record for record, (_, is_lost) in zip(records, rounds, strict=True) if not is_lost]
    unread, taken, num_taken = UnreadRounds(), [], 0
    for each in kept:
        unread.add(each)
    for each in records:
        if data.draw(st.booleans()):
            end = each.first + each.num_tokens
            taken += unread.take(range(end - num_taken), ended=False)
            num_taken = end
    assert sum(each.num_tokens for each in taken) == num_taken
    drafted = [each for each in taken if each.drafter]
    assert drafted == [each for each in kept if each.first < num_taken]


def test_round_with_only_the_end_token_is_not_lost():
    """It comes with the tokens before it, or alone."""
    unread = UnreadRounds()
    unread.add(RoundRecord(2, 3, "lookup", (1,)))
    unread.add(RoundRecord(0, 3, "lookup", first=2))
    assert [each.num_tokens for each in unread.take((5, 6), ended=True)] == [2, 0]
    assert unread.take((), ended=False) == ()


def _confirmed(answer, draft, *, num_left):
    """Return how many tokens of the answer a step with this draft confirms."""
    num_accepted = 0
    for ours, own in zip(draft, answer, strict=False):
        if ours != own:
            break
        num_accepted += 1
    return min(num_accepted + 1, num_left)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=24),
    st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=30),
    st.booleans(),
    st.data(),
)
def test_compared_drafts_give_the_rounds_of_the_engine(answer, drafts, ended, data):
    """Whatever was drafted, and however the tokens of several steps come together."""
    expected, rounds, want, waiting = ExpectedRounds(), [], [], []
    num_given = 0
    drafts = iter(drafts)
    while True:
        is_over = num_given == len(answer)
        if is_over and not ended:
            break
        draft = next(drafts, [])
        if draft:
            sources = tuple(range(1, len(draft) + 1))
            expected.add(DraftRecord(num_given, tuple(draft), sources, "lookup", 0.5))
        if is_over:
            want.append((0, len(draft), 0))
            break
        num_tokens = _confirmed(answer[num_given:], draft, num_left=len(answer) - num_given)
        tokens = answer[num_given : num_given + num_tokens]
        num_accepted = sum(a == b for a, b in zip(tokens, draft, strict=False))
        want.append((num_tokens, len(draft), num_accepted))
        num_given += num_tokens
        waiting += tokens
        # With an end token within the draft, the step ends there.
        if num_given == len(answer) and ended and num_tokens == num_accepted:
            break
        if data.draw(st.booleans()) and num_given < len(answer):
            rounds += expected.take(waiting, ended=False)
            waiting = []
    rounds += expected.take(waiting, ended=ended)
    assert sum(each.num_tokens for each in rounds) == len(answer)
    assert with_positions(rounds) == rounds
    drafted = [each for each in want if each[1]]
    found = [
        (each.num_tokens, each.num_draft_tokens, len(each.accepted_sources))
        for each in rounds
        if each.num_draft_tokens
    ]
    assert found == drafted
    for each in rounds:
        assert each.accepted_sources == tuple(range(1, len(each.accepted_sources) + 1))


def test_tokens_that_padding_drafted_count_as_the_targets_own():
    """An engine that pads drafts may confirm more tokens than our draft has."""
    expected = ExpectedRounds()
    expected.add(DraftRecord(0, (5, 6), (1, 1), "lookup", 0.0))
    expected.add(DraftRecord(5, (9,), (1,), "lookup", 0.0))
    found = expected.take((5, 6, 7, 0, 0, 9, 8), ended=False)
    assert [(each.num_tokens, len(each.accepted_sources)) for each in found] == [
        (3, 2),
        (2, 0),
        (2, 1),
    ]
