"""Proof that verification rules keep the target's distribution, in exact fractions.

Nothing is sampled. Each rule runs unchanged with a `chance` that goes through all outcomes of its
decisions. The drafter's own draws are enumerated too. The distribution of the first tokens must
equal the target's exactly.
"""

from collections import defaultdict
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.acceptance.exact import Verdict
from specdec.acceptance.rules import verify_as_block, verify_as_typical, verify_by_rejection
from tests.unit.acceptance.enumeration import Models, all_outcomes, distribution_of_target, extend


def distribution_of_output(models, rule, num_drafts, vocab_size, length, is_drawn):
    """Return {first `length` tokens: probability} of one round that the target continues.

    The draft is drawn from the drafter's distributions if `is_drawn`, else it is one fixed text.
    """
    distribution = defaultdict(Fraction)
    for draft in product(range(vocab_size), repeat=num_drafts):
        prefixes = [draft[:num_tokens] for num_tokens in range(num_drafts + 1)]
        draft_distributions = [models.distribution("draft", text) for text in prefixes[:-1]]
        share = Fraction(1)
        if is_drawn:
            for token, each in zip(draft, draft_distributions, strict=True):
                share *= each[token]
        elif draft != tuple(position % vocab_size for position in range(num_drafts)):
            continue
        if not share:
            continue
        target_distributions = [models.distribution("target", text) for text in prefixes]
        given_distributions = draft_distributions if is_drawn else None
        for verdict, probability in all_outcomes(
            lambda chance, d=draft, g=given_distributions, t=target_distributions: rule(
                d, g, t, chance
            )
        ):
            assert verdict.tokens[: verdict.num_accepted] == draft[: verdict.num_accepted]
            extend(distribution, models, verdict.tokens[:length], share * probability, length)
    return distribution


SIZES = [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3)]


@pytest.mark.parametrize("rule", [verify_by_rejection, verify_as_block])
@pytest.mark.parametrize(("vocab_size", "num_drafts"), SIZES)
@pytest.mark.parametrize("is_drawn", [True, False], ids=["drawn", "looked up"])
def test_lossless_rules_keep_the_targets_distribution(rule, vocab_size, num_drafts, is_drawn):
    """The joint distribution of all tokens of a round is equal, for up to three draft tokens."""
    for seed in range(4 if vocab_size == 3 and num_drafts == 3 else 12):
        models, length = Models(seed, vocab_size), num_drafts + 1

        distribution = distribution_of_output(
            models, rule, num_drafts, vocab_size, length, is_drawn
        )

        assert distribution == distribution_of_target(models, length)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), sizes=st.sampled_from([(2, 2), (3, 2), (2, 3)]))
def test_block_never_accepts_fewer_tokens_than_rejection(seed, sizes):
    """Its expected number of accepted tokens is at least that of token-by-token rejection."""
    vocab_size, num_drafts = sizes
    models = Models(seed, vocab_size)

    assert mean_accepted(models, verify_as_block, vocab_size, num_drafts) >= mean_accepted(
        models, verify_by_rejection, vocab_size, num_drafts
    )


def mean_accepted(models, rule, vocab_size, num_drafts):
    """Return the exact expected number of accepted tokens."""
    mean = Fraction(0)
    for draft in product(range(vocab_size), repeat=num_drafts):
        prefixes = [draft[:num_tokens] for num_tokens in range(num_drafts + 1)]
        draft_distributions = [models.distribution("draft", text) for text in prefixes[:-1]]
        share = Fraction(1)
        for token, each in zip(draft, draft_distributions, strict=True):
            share *= each[token]
        if not share:
            continue
        target_distributions = [models.distribution("target", text) for text in prefixes]
        for verdict, probability in all_outcomes(
            lambda chance, d=draft, g=draft_distributions, t=target_distributions: rule(
                d, g, t, chance
            )
        ):
            mean += share * probability * verdict.num_accepted
    return mean


def test_paper_example_of_block_verification():
    """In Sun et al. 2025, section 3, block verification raises 10/9 accepted tokens to 11/9.

    There the drafter always has q = (2/3, 1/3) and the target p = (1/3, 2/3).
    """

    class Example:
        def distribution(self, name, _):
            shares = (2, 1) if name == "draft" else (1, 2)
            return np.array([Fraction(share, 3) for share in shares], dtype=object)

    assert mean_accepted(Example(), verify_by_rejection, 2, 2) == Fraction(10, 9)
    assert mean_accepted(Example(), verify_as_block, 2, 2) == Fraction(11, 9)


def test_proof_detects_a_wrong_rule():
    """It detects typical acceptance, and a replacement drawn from the whole distribution."""
    models = Models(5, 3, zeros=False)
    target = distribution_of_target(models, 1)
    assert distribution_of_output(models, verify_by_rejection, 1, 3, 1, True) == target
    assert distribution_of_output(models, verify_as_typical, 1, 3, 1, True) != target

    def broken(draft, draft_distributions, target_distributions, chance):
        if chance.happens(
            min(1, target_distributions[0][draft[0]] / draft_distributions[0][draft[0]])
        ):
            return Verdict(tuple(draft), 1)
        return Verdict((chance.draw(target_distributions[0]),), 0)

    assert distribution_of_output(models, broken, 1, 3, 1, True) != target


@pytest.mark.parametrize("rule", [verify_by_rejection, verify_as_block])
def test_end_token_must_be_drafted_like_any_other(rule):
    """If a drafter keeps its end token back, the rest was not drawn from its distributions.

    The rules then do not keep the target's distribution.
    """
    models, end, vocab_size = Models(4, 3, zeros=False), 0, 3
    distribution = defaultdict(Fraction)
    for drawn in product(range(vocab_size), repeat=2):
        share = (
            models.distribution("draft", ())[drawn[0]]
            * models.distribution("draft", drawn[:1])[drawn[1]]
        )
        kept = drawn[: drawn.index(end)] if end in drawn else drawn
        prefixes = [kept[:num_tokens] for num_tokens in range(len(kept) + 1)]
        for verdict, probability in all_outcomes(
            lambda chance, k=kept, p=prefixes: rule(
                k,
                [models.distribution("draft", text) for text in p[:-1]],
                [models.distribution("target", text) for text in p],
                chance,
            )
        ):
            extend(distribution, models, verdict.tokens[:1], share * probability, 1)

    assert sum(distribution.values()) == 1
    assert distribution != distribution_of_target(models, 1)
    assert distribution_of_output(models, rule, 2, vocab_size, 1, True) == distribution_of_target(
        models, 1
    )
