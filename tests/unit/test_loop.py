"""Tests of the loop with scripted engines: only the target's own tokens are confirmed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.loop import Context, speculate, stream_target
from specdec.rounds import TARGET_SOURCE
from tests.unit.scripted import (
    END_ID,
    PROMPT,
    KnowingTarget,
    ScriptedDrafter,
    accepted_except,
    always_accepted,
    never_accepted,
)

TEXT = tuple(range(100, 120))


def new_context(max_tokens):
    """Return the context of a new request."""
    return Context(np.asarray(PROMPT, dtype=np.int32), max_tokens)


def run(text, drafter, max_tokens):
    """Return (rounds, target) of one request with speculation."""
    target = KnowingTarget(text)
    return list(speculate(new_context(max_tokens), target, drafter)), target


def joined(rounds):
    """Return the tokens of all rounds."""
    return tuple(token for each in rounds for token in each.tokens)


@given(st.data())
def test_output_is_the_targets_own(data):
    """The tokens are the target's for any draft, k, text and limit."""
    text = tuple(data.draw(st.lists(st.integers(1, 5), max_size=24), label="text"))
    k = data.draw(st.integers(0, 9), label="k")
    max_tokens = data.draw(st.integers(1, 30), label="max_tokens")
    # With few different tokens, drafts are often accepted by chance, or have the end token.
    other_tokens = data.draw(
        st.lists(st.one_of(st.none(), st.integers(END_ID, 5)), min_size=60, max_size=60),
        label="other_tokens",
    )
    follows = data.draw(st.lists(st.booleans(), min_size=60, max_size=60), label="follows")
    accepted = always_accepted(text)
    drafter = ScriptedDrafter(k, lambda at: accepted(at) if follows[at] else other_tokens[at])

    rounds, target = run(text, drafter, max_tokens)

    assert joined(rounds) == text[:max_tokens]
    assert rounds[-1].ended == (len(text) < max_tokens)
    assert not any(each.ended for each in rounds[:-1])
    assert all(each.tokens for each in rounds[:-1])
    assert target.num_passes == len(rounds)
    assert drafter.observed == rounds
    for each, draft in zip(rounds, target.drafts, strict=True):
        assert each.num_draft_tokens == len(draft)
        assert draft[: each.num_accepted] == each.tokens[: each.num_accepted]
        assert len(each.tokens) <= each.num_accepted + 1
        assert each.sources == (1,) * each.num_accepted + (TARGET_SOURCE,) * (
            len(each.tokens) - each.num_accepted
        )


def test_fully_accepted_drafts_need_the_fewest_passes():
    """If every draft token is accepted, a pass confirms k + 1 tokens."""
    rounds, target = run(TEXT, ScriptedDrafter(4, always_accepted(TEXT)), max_tokens=20)

    assert [len(each.tokens) for each in rounds] == [5, 5, 5, 5]
    assert [each.num_accepted for each in rounds] == [4, 4, 4, 4]
    assert target.num_passes == 4


def test_rejected_drafts_cost_no_extra_pass():
    """If no draft token is accepted, each pass still confirms the target's own token."""
    rounds, target = run(TEXT, ScriptedDrafter(4, never_accepted), max_tokens=20)

    assert target.num_passes == 20
    assert joined(rounds) == TEXT
    assert {source for each in rounds for source in each.sources} == {TARGET_SOURCE}


def test_tokens_after_a_rejected_one_are_not_accepted():
    """Even a correct token is rejected there, because its context was another."""
    rounds, _ = run(TEXT, ScriptedDrafter(4, accepted_except(TEXT, {2, 9})), max_tokens=20)

    assert [each.tokens for each in rounds[:3]] == [TEXT[:3], TEXT[3:8], TEXT[8:10]]
    assert [each.sources for each in rounds[:3]] == [(1, 1, 0), (1, 1, 1, 1, 0), (1, 0)]


@pytest.mark.parametrize("length", range(1, 10))
@pytest.mark.parametrize("drafts_end_token", [True, False])
def test_end_token_at_each_position_of_a_round(length, drafts_end_token):
    """The end token ends the answer at any position, drafted or not, and is never returned."""
    text = TEXT[:length]
    token_at = always_accepted(text if drafts_end_token else TEXT)

    rounds, _ = run(text, ScriptedDrafter(4, token_at), max_tokens=20)

    assert joined(rounds) == text
    assert [each.ended for each in rounds] == [False] * (len(rounds) - 1) + [True]
    assert len(rounds) == length // 5 + 1


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_limit_inside_a_round(max_tokens):
    """max_tokens is met exactly, and the drafter is never asked for more than can be used."""
    drafter = ScriptedDrafter(4, always_accepted(TEXT))

    rounds, target = run(TEXT, drafter, max_tokens)

    assert joined(rounds) == TEXT[:max_tokens]
    assert target.num_passes == -(-max_tokens // 5)
    assert not rounds[-1].ended
    for (context_length, most), draft in zip(drafter.asked, target.drafts, strict=False):
        num_left = max_tokens - (context_length - len(PROMPT))
        assert len(draft) <= most == num_left - 1


def test_single_token_is_one_plain_step():
    """With max_tokens = 1 no draft can help, so the drafter is not asked."""
    drafter = ScriptedDrafter(4, always_accepted(TEXT))

    rounds, target = run(TEXT, drafter, max_tokens=1)

    assert joined(rounds) == TEXT[:1]
    assert target.drafts == [()]
    assert drafter.asked == []


def test_empty_proposal_is_a_plain_step():
    """The pass has no draft, and its round names no drafter."""
    rounds, target = run(TEXT, ScriptedDrafter(4, lambda _: None), max_tokens=6)

    assert target.drafts == [()] * 6
    figures = {(each.drafter, each.num_draft_tokens, each.sources) for each in rounds}
    assert figures == {(None, 0, (0,))}


def test_target_that_ends_at_once_gives_one_empty_round():
    """The only round has no tokens and is marked as the end."""
    rounds, _ = run((), ScriptedDrafter(4, never_accepted), max_tokens=5)

    assert [(each.tokens, each.ended, each.num_accepted) for each in rounds] == [((), True, 0)]


@given(
    text=st.lists(st.integers(1, 9), max_size=20).map(tuple),
    max_tokens=st.integers(1, 25),
    k=st.integers(1, 6),
)
def test_off_equals_on(text, max_tokens, k):
    """Without speculation, the target's single streaming call gives the same tokens as the loop."""
    off = list(stream_target(new_context(max_tokens), KnowingTarget(text)))
    on, _ = run(text, ScriptedDrafter(k, always_accepted(text)), max_tokens)

    assert joined(off) == joined(on)
    assert off[-1].ended == on[-1].ended
    assert {source for each in off for source in each.sources} <= {TARGET_SOURCE}


def test_leaving_early_stops_the_engine_stream():
    """Closing the rounds closes the engine's stream at once, so it generates no more tokens."""
    target = KnowingTarget(TEXT)
    rounds = stream_target(new_context(20), target)
    next(rounds)
    next(rounds)

    rounds.close()

    assert target.stream_closed
    assert target.num_streamed == 2


def test_leaving_early_makes_no_further_pass():
    """After the rounds are closed, neither engine is called again."""
    target, drafter = KnowingTarget(TEXT), ScriptedDrafter(4, always_accepted(TEXT))
    rounds = speculate(new_context(20), target, drafter)
    next(rounds)

    rounds.close()

    assert target.num_passes == len(drafter.asked) == 1
