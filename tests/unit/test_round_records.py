"""Tests of the rounds that travel beside an engine's tokens."""

from hypothesis import given
from hypothesis import strategies as st

from specdec.round_records import DraftingReport, RoundRecord, UnreadRounds

RECORDS = st.builds(
    lambda num_accepted, num_more, draft_s: RoundRecord(
        num_accepted + 1, num_accepted + num_more, "lookup", (1,) * num_accepted, draft_s
    ),
    st.integers(0, 8),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.25]),
)


@given(st.lists(RECORDS, max_size=6), st.sampled_from([None, {"choice": None}]))
def test_report_is_read_as_it_was_written(rounds, task):
    """The JSON text loses nothing."""
    report = DraftingReport(tuple(rounds), task, (("suffix", "internal"),))
    assert DraftingReport.from_text(report.to_text()) == report


@given(st.lists(RECORDS, min_size=1, max_size=6), st.data())
def test_rounds_cover_exactly_the_tokens_that_came(rounds, data):
    """Rounds are taken whole, in order; the last one may be cut, or stand for unknown ones."""
    unread = UnreadRounds()
    for each in rounds:
        unread.add(each)
    num_tokens = data.draw(st.integers(0, sum(each.num_tokens for each in rounds) + 3))
    taken = unread.take(num_tokens)
    assert sum(each.num_tokens for each in taken) == num_tokens
    assert all(len(each.accepted_sources) <= each.num_tokens for each in taken)
    assert [each.num_draft_tokens for each in taken[:-1]] == [
        each.num_draft_tokens for each in rounds[: max(0, len(taken) - 1)]
    ]


def test_round_with_only_the_end_token_is_not_lost():
    """It comes with the tokens before it, or alone."""
    unread = UnreadRounds()
    unread.add(RoundRecord(2, 3, "lookup", (1,)))
    unread.add(RoundRecord(0, 3, "lookup"))
    assert [each.num_tokens for each in unread.take(2)] == [2, 0]
    assert unread.take(0) == ()
