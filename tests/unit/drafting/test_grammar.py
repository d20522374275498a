"""The drafter of tokens that a guide forces."""

import numpy as np

from specdec.drafting.grammar import GrammarDrafter
from specdec.drafting.protocol import NO_PROPOSAL
from tests.unit.constraints.small_vocabulary import constraint

CONTEXT = np.asarray([0, 0, 1], dtype=np.int32)
"""Two tokens of a prompt, and one of the answer."""


def drafter(grammar, num_tokens=8):
    """Return the drafter of a grammar; None stands for a request without a guide."""
    own = None if grammar is None else constraint(grammar)
    return GrammarDrafter("grammar", 7, num_tokens, own, num_prompt=2)


def test_proposes_the_tokens_that_must_follow():
    """They are attributed to the drafter."""
    found = drafter('start: "b" "abab" ("a" | "b")').propose(CONTEXT, 8)

    assert (found.tokens, found.drafter, found.source) == ((2, 2), "grammar", 7)


def test_proposes_no_more_than_it_may():
    """Both the settings and what is left of the answer limit a draft."""
    grammar = 'start: "b" "ababababab" ("a" | "b")'

    assert drafter(grammar, num_tokens=3).propose(CONTEXT, 8).tokens == (2, 2, 2)
    assert drafter(grammar).propose(CONTEXT, 1).tokens == (2,)


def test_a_long_forced_text_is_spelled_once(monkeypatch):
    """Each round goes on in it, and a round that leaves it asks again."""
    own = drafter('start: "b" "ababababab" ("a" | "b")', num_tokens=2)
    asked = []
    forced = own._constraint.forced
    monkeypatch.setattr(own._constraint, "forced", lambda answer: asked.append(1) or forced(answer))
    more = np.concatenate((CONTEXT, [2, 2])).astype(np.int32)

    assert own.propose(CONTEXT, 8).tokens == own.propose(more, 8).tokens == (2, 2)
    assert len(asked) == 1
    assert own.propose(np.asarray([0, 0], dtype=np.int32), 8).tokens[0] == 1
    assert len(asked) == 2


def test_proposes_nothing_where_nothing_is_forced():
    """Several texts are possible, or the answer is over, or there is no guide."""
    assert drafter('start: ("a" | "b")+').propose(CONTEXT, 8) == NO_PROPOSAL
    assert drafter('start: "b"').propose(CONTEXT, 8) == NO_PROPOSAL
    assert drafter(None).propose(CONTEXT, 8) == NO_PROPOSAL
