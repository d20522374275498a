"""Drafts lose the tokens that a guide forbids, before the target sees them."""

import numpy as np
import pytest

from specdec.engines.cutting_target import CuttingTarget
from specdec.engines.protocol import NO_DRAFT, Draft, Verification
from tests.unit.constraints.small_vocabulary import constraint

PROMPT = np.asarray([3, 1], dtype=np.int32)
GRAMMAR = 'start: "a" "b"* "a"'


class RecordingTarget:
    """A target that keeps the drafts it gets, and confirms them."""

    def __init__(self):
        self.drafts = []

    def verify(self, context, draft):
        self.drafts.append(draft)
        return Verification((*draft.tokens, 0), ended=False)

    def stream(self, context, max_tokens):
        yield Verification((0,), ended=True)


@pytest.fixture
def target():
    """Return a recording target."""
    return RecordingTarget()


@pytest.fixture
def constrained(target):
    """Return the target behind a constraint."""
    return CuttingTarget(target, constraint(GRAMMAR), len(PROMPT))


def context(*answer):
    """Return the prompt and an answer."""
    return np.concatenate((PROMPT, np.asarray(answer, dtype=np.int32)))


@pytest.mark.parametrize(
    ("answer", "draft", "seen"),
    [
        ((), (0, 1, 1, 0), (0, 1, 1, 0)),
        ((), (0, 1, 0, 0), (0, 1, 0)),
        ((), (1, 0), ()),
        ((0,), (1, 2, 0), (1,)),
        ((0, 0), (1,), ()),
    ],
)
def test_a_chain_ends_before_its_first_forbidden_token(constrained, target, answer, draft, seen):
    """The prompt does not count: it need not follow the guide."""
    found = constrained.verify(context(*answer), Draft(draft))

    assert target.drafts[0].tokens == seen
    assert found.tokens == (*seen, 0)
    # The controller hears of one token that was cut, as of one that was rejected.
    assert found.num_draft_tokens == (None if seen == draft else len(seen) + 1)


def test_a_tree_loses_forbidden_nodes_and_all_that_follow_them(constrained, target):
    """The others keep their parents, under new numbers."""
    #        a      b(no)  b after a   b after b(no)   a after a-b
    draft = Draft((0, 1, 1, 1, 0), parents=(-1, -1, 0, 1, 2))

    constrained.verify(context(), draft)

    assert target.drafts[0].tokens == (0, 1, 0)
    assert target.drafts[0].parents == (-1, 0, 1)


def test_drawn_drafts_stay_whole(constrained, target):
    """Their logits show that they are verified by probabilities, which a cut would bias."""
    draft = Draft((1, 0), logits=np.zeros((2, 4), dtype=np.float32))

    constrained.verify(context(), draft)

    assert target.drafts == [draft]


def test_the_rest_of_a_draft_is_kept(constrained, target):
    """A head is asked for its next draft in any case."""
    constrained.verify(context(), Draft((1,), num_next=3, next_depth=2))
    constrained.verify(context(), NO_DRAFT)

    (cut, none) = target.drafts
    assert (cut.tokens, cut.num_next, cut.next_depth) == ((), 3, 2)
    assert none is NO_DRAFT


def test_streams_pass_through(constrained):
    """Without speculation there is nothing to cut."""
    assert [each.tokens for each in constrained.stream(context(), 5)] == [(0,)]
