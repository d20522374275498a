"""Proof that trees keep the target's distribution: every outcome, in exact fractions.

Each branch is drawn by a drafter of its own, or copied. Branches may begin with the same token.
"""

from collections import defaultdict
from fractions import Fraction
from itertools import product

import pytest

from specdec.acceptance.exact import verify_chain
from specdec.acceptance.rules import verify_by_rejection
from specdec.acceptance.trees import verify_tree, verify_tree_by_rejection
from tests.unit.acceptance.enumeration import Models, all_outcomes, distribution_of_target, extend

DRAWN, LOOKED_UP = "drawn", "looked up"
SHAPES = [
    (2, ((DRAWN, 1), (DRAWN, 1))),
    (2, ((DRAWN, 2), (DRAWN, 2))),
    (3, ((DRAWN, 1), (DRAWN, 1))),
    (3, ((DRAWN, 2), (DRAWN, 1))),
    (3, ((LOOKED_UP, 2), (DRAWN, 2))),
    (3, ((DRAWN, 1), (LOOKED_UP, 2))),
    (3, ((LOOKED_UP, 2), (LOOKED_UP, 2))),
    (2, ((DRAWN, 1), (DRAWN, 2), (DRAWN, 1))),
    (2, ((DRAWN, 3), (LOOKED_UP, 3))),
]


def forests(models, vocab_size, shape):
    """Yield every forest that the drafters can propose, with its probability.

    Each is (tokens, parents, distributions, probability). `distributions` has for each node the one
    that it was drawn from.
    """
    branches = []
    for number, (kind, length) in enumerate(shape):
        ways = []
        for tokens in product(range(vocab_size), repeat=length):
            distributions = [
                models.distribution(f"draft{number}", tokens[:position])
                for position in range(length)
            ]
            if kind == LOOKED_UP:
                if tokens != tuple((number + position) % vocab_size for position in range(length)):
                    continue
                distributions = [
                    [Fraction(int(each == token)) for each in range(vocab_size)] for token in tokens
                ]
            share = Fraction(1)
            for token, distribution in zip(tokens, distributions, strict=True):
                share *= distribution[token]
            if share:
                ways.append((tokens, distributions, share))
        branches.append(ways)
    for forest in product(*branches):
        tokens, parents, distributions, share = [], [], [], Fraction(1)
        for own_tokens, own_distributions, own_share in forest:
            parents += [-1, *range(len(tokens), len(tokens) + len(own_tokens) - 1)]
            tokens += own_tokens
            distributions += own_distributions
            share *= own_share
        yield tokens, parents, distributions, share


def texts_after(tokens, parents):
    """Return the tokens after the context, first for the root (none), then up to each node."""
    texts = [()]
    for token, parent in zip(tokens, parents, strict=True):
        texts.append((*texts[parent + 1], token))
    return texts


def distribution_of_output(models, vocab_size, shape, rule=verify_tree_by_rejection):
    """Return {tokens: probability} of one round of forests that the target continues."""
    length = 1 + max(size for _, size in shape)
    distribution = defaultdict(Fraction)
    for tokens, parents, draft_distributions, share in forests(models, vocab_size, shape):
        target_distributions = [
            models.distribution("target", text) for text in texts_after(tokens, parents)
        ]

        def run(chance, forest=(tokens, parents, draft_distributions, target_distributions)):
            return rule(*forest, chance)

        for verdict, probability in all_outcomes(run):
            assert len(verdict.tokens) == verdict.num_accepted + 1
            extend(distribution, models, verdict.tokens[:length], share * probability, length)
    return distribution


@pytest.mark.parametrize(("vocab_size", "shape"), SHAPES)
def test_rejection_keeps_the_targets_distribution(vocab_size, shape):
    """The joint distribution of all tokens of a round is equal, as fractions."""
    length = 1 + max(size for _, size in shape)
    for seed in range(3):
        models = Models(seed, vocab_size)

        assert distribution_of_output(models, vocab_size, shape) == distribution_of_target(
            models, length
        )


def test_proof_detects_a_rule_that_ignores_earlier_rejections():
    """The wrong rule compares every candidate with the target's whole distribution.

    A second candidate must be compared with what is left of it after the first was rejected.
    """

    def broken(tokens, parents, draft_distributions, target_distributions, chance):
        for node, token in enumerate(tokens):
            if chance.happens(
                min(1, target_distributions[0][token] / draft_distributions[node][token])
            ):
                return verify_by_rejection(
                    (), None, [target_distributions[node + 1]], chance
                )._replace(
                    tokens=(token, chance.draw(target_distributions[node + 1])), num_accepted=1
                )
        return verify_by_rejection((), None, target_distributions[:1], chance)

    models, shape = Models(5, 3, zeros=False), ((DRAWN, 1), (DRAWN, 1))

    assert distribution_of_output(models, 3, shape, broken) != distribution_of_target(models, 2)


def test_more_branches_never_accept_fewer_tokens():
    """A second draft never lowers the exact expected number of accepted tokens, in 20 models."""

    def mean_accepted(models, shape):
        mean = Fraction(0)
        for tokens, parents, draft_distributions, share in forests(models, 3, shape):
            distributions = [
                models.distribution("target", text) for text in texts_after(tokens, parents)
            ]

            def run(chance, forest=(tokens, parents, draft_distributions, distributions)):
                return verify_tree_by_rejection(*forest, chance)

            mean += sum(share * p * each.num_accepted for each, p in all_outcomes(run))
        return mean

    for seed in range(20):
        models = Models(seed, 3)
        one, two = ((DRAWN, 1),), ((DRAWN, 1), (DRAWN, 1))
        assert mean_accepted(models, two) >= mean_accepted(models, one)


@pytest.mark.parametrize("num_branches", [1, 2, 3])
def test_exact_verification_gives_the_targets_text_for_every_tree(num_branches):
    """Every forest of chains of 2 is tried with every table of the target's draws.

    The target's draws do not depend on the tree. So the distribution is the target's for every
    draft, even for one drawn with the target's noise.
    """
    length, vocab_size = 2, 2
    texts = [text for size in range(length + 1) for text in product(range(vocab_size), repeat=size)]
    chains = list(product(range(vocab_size), repeat=length))
    for draws in product(range(vocab_size), repeat=len(texts)):
        token_after = dict(zip(texts, draws, strict=True))
        own = []
        for _ in range(length + 1):
            own.append(token_after[tuple(own)])
        for forest in product(chains, repeat=num_branches):
            tokens = [token for chain in forest for token in chain]
            parents = [-1, 0] + [p for n in range(1, num_branches) for p in (-1, 2 * n)]
            choices = [token_after[text] for text in texts_after(tokens, parents)]

            verdict = verify_tree(tokens, parents, choices)

            assert list(verdict.tokens) == own[: len(verdict.tokens)]
            # As many tokens are accepted as the best branch would have by itself.
            alone = [
                verify_chain(
                    chain, [token_after[chain[:position]] for position in range(length + 1)]
                )
                for chain in forest
            ]
            assert verdict.num_accepted == max(each.num_accepted for each in alone)
