"""Draft tokens that a head draws."""

import numpy as np
import pytest
import torch

from specdec.acceptance.sampling import Draw, SamplingParams
from specdec.constraints.guide import Guide
from specdec.errors import InvalidRequestError
from specdec.torch_engine.sampler import NOT_DRAWN, Sampler
from tests.unit.constraints.small_vocabulary import END, constraint

ONLY = 2
"""The only token in the vocabulary of the head's output."""


class NarrowHead:
    """An output head that leaves out all tokens but one, as heads of small vocabularies do."""

    is_reduced = True

    def logits(self, hidden):
        rows = torch.full((len(hidden), 4), float("-inf"))
        rows[:, ONLY] = hidden.sum(dim=-1)
        return rows

    def most_likely(self, hidden):
        return torch.full((len(hidden),), ONLY)


def draw(banned=()):
    """Return a greedy draw that bans some tokens."""
    params = SamplingParams(bad_words=tuple((token,) for token in banned), min_tokens=1)
    return Draw(params, np.zeros(3, dtype=np.int32), 1)


def test_a_draft_without_a_possible_token_fails_nothing():
    """The other requests of the pass get their tokens, and this one has no more draft tokens."""
    sampler, hidden = Sampler(NarrowHead()), torch.ones(3, 2)

    assert sampler.guess(hidden, [draw(), draw([ONLY]), draw()]) == [ONLY, NOT_DRAWN.token, ONLY]
    assert sampler.guess(hidden[:2], [draw([ONLY])]) == [NOT_DRAWN.token]


def test_a_row_that_is_not_finite_has_no_draft_token():
    """The target's own rows decide whether the request fails."""
    hidden = torch.ones(2, 2)
    hidden[1, 0] = float("nan")

    assert Sampler(NarrowHead()).guess(hidden, [draw(), draw()]) == [ONLY, NOT_DRAWN.token]


def test_a_ranking_without_a_possible_token_is_empty():
    """A head's tree then has no children there."""
    rankings = Sampler(NarrowHead()).rank(torch.ones(2, 2), [draw(), draw([ONLY])], 3)

    assert [[token for token, _ in each] for each in rankings] == [[ONLY], []]


def test_a_draft_ends_where_its_vocabulary_lacks_what_the_guide_allows():
    """Its tokens so far are kept. A whole vocabulary always has a token that is allowed."""
    guided = Draw(
        SamplingParams(guide=Guide("regex", "b")),
        np.zeros(3, dtype=np.int32),
        3,
        end_id=END,
        constraint=constraint('start: "b"'),
    )
    head = NarrowHead()

    ((drawn,),) = Sampler(head).choose(torch.ones(2, 2), [[guided]])
    assert drawn.token == END

    head.is_reduced = False
    with pytest.raises(InvalidRequestError, match="no token is left"):
        Sampler(head).choose(torch.ones(2, 2), [[guided]])
