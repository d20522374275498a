"""Proof that drafts do not change the distribution of answers that follow a guide.

The guide is compiled by the real library, for a vocabulary of four tokens. Distributions are exact
fractions, and every outcome of drafts and decisions is enumerated.
"""

from collections import defaultdict
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from specdec.acceptance.exact import Verdict
from specdec.acceptance.rules import verify_as_block, verify_by_rejection
from specdec.acceptance.trees import verify_tree_by_rejection
from tests.unit.acceptance.enumeration import Models, all_outcomes, distribution_of_target, extend
from tests.unit.constraints.small_vocabulary import END, TOKENS, constraint

GRAMMARS = ('start: "a" "b"* "a"', 'start: ("ab" | "b")+', 'start: "a"? "b" "a"*')
NUM_TOKENS = len(TOKENS)


class GuidedModels:
    """Models whose distributions a guide masks; `unmasked` models are left as they are."""

    def __init__(self, seed, grammar, unmasked=()):
        self._models = Models(seed, NUM_TOKENS, zeros=False)
        self._constraint = constraint(grammar)
        self._unmasked = unmasked

    def distribution(self, name, text):
        found = self._models.distribution(name, text)
        allowed = self.allowed(text)
        if name in self._unmasked or allowed is None:
            return found
        masked = np.where(allowed, found, Fraction(0))
        return masked / masked.sum()

    def allowed(self, text):
        """Return which tokens may follow a text; None after a text that is not allowed or ended."""
        if END in text:
            return None
        after = self._constraint.after(np.asarray(text, dtype=np.int32))
        if after is None:
            return None
        allowed = ~after.forbidden
        allowed[END] = after.may_end
        return allowed

    def num_allowed(self, draft):
        """Return how many tokens of a draft the guide allows."""
        for size, token in enumerate(draft):
            allowed = self.allowed(draft[:size])
            if allowed is not None and not allowed[token]:
                return size
        return len(draft)


def distribution_of_output(models, rule, num_drafts, *, is_drawn=True, cuts=False):
    """Return {tokens: probability} of one round that the target continues.

    The draft is drawn from the model `draft`, or each draft is copied equally often. With `cuts`,
    tokens that the guide forbids are taken from it before the target sees them.
    """
    distribution = defaultdict(Fraction)
    for whole in product(range(NUM_TOKENS), repeat=num_drafts):
        share = Fraction(1, NUM_TOKENS**num_drafts)
        if is_drawn:
            share = Fraction(1)
            for size, token in enumerate(whole):
                share *= models.distribution("draft", whole[:size])[token]
        if not share:
            continue
        draft = whole[: models.num_allowed(whole)] if cuts else whole
        prefixes = [draft[:size] for size in range(len(draft) + 1)]
        drafted = [models.distribution("draft", text) for text in prefixes[:-1]]
        target = [models.distribution("target", text) for text in prefixes]
        given = drafted if is_drawn else None
        for verdict, probability in all_outcomes(
            lambda chance, d=draft, g=given, t=target: rule(d, g, t, chance)
        ):
            tokens = verdict.tokens[: num_drafts + 1]
            extend(distribution, models, tokens, share * probability, num_drafts + 1)
    return distribution


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("rule", [verify_by_rejection, verify_as_block])
@pytest.mark.parametrize("unmasked", [(), ("draft",)], ids=["masked draft", "free draft"])
def test_drawn_drafts_keep_the_guided_distribution(grammar, rule, unmasked):
    """It does not matter whether the draft model draws under the guide."""
    for seed in range(3):
        models = GuidedModels(seed, grammar, unmasked)

        found = distribution_of_output(models, rule, 2)

        assert found == distribution_of_target(models, 3)


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("rule", [verify_by_rejection, verify_as_block])
@pytest.mark.parametrize("cuts", [False, True])
def test_copied_drafts_may_be_cut_where_the_guide_forbids_them(grammar, rule, cuts):
    """The distribution is the same with and without the tokens that were cut."""
    models = GuidedModels(5, grammar)

    found = distribution_of_output(models, rule, 2, is_drawn=False, cuts=cuts)

    assert found == distribution_of_target(models, 3)


def test_proof_detects_a_mask_after_acceptance():
    """A rule that accepts by the free distribution, and masks only what it draws itself."""
    grammar = GRAMMARS[0]
    models = GuidedModels(1, grammar, unmasked=("draft",))
    free = GuidedModels(1, grammar, unmasked=("target",))

    def masks_late(draft, draft_distributions, target_distributions, chance):
        before = [free.distribution("target", draft[:size]) for size in range(len(draft) + 1)]
        verdict = verify_by_rejection(draft, draft_distributions, before, chance)
        own = target_distributions[verdict.num_accepted]
        return Verdict((*verdict.tokens[:-1], chance.draw(own)), verdict.num_accepted)

    assert distribution_of_output(models, masks_late, 2) != distribution_of_target(models, 3)


def test_proof_detects_that_a_drawn_draft_was_cut():
    """The value of a draw would decide how much is verified, so drawn drafts stay whole."""
    models = GuidedModels(1, GRAMMARS[0], unmasked=("draft",))

    found = distribution_of_output(models, verify_by_rejection, 2, cuts=True)

    assert found != distribution_of_target(models, 3)


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_trees_keep_the_guided_distribution(grammar):
    """Two drawn tokens compete for the first position; one of them may be forbidden."""
    models = GuidedModels(2, grammar, unmasked=("draft",))
    distribution = defaultdict(Fraction)
    drafted = models.distribution("draft", ())
    for tokens in product(range(NUM_TOKENS), repeat=2):
        target = [
            models.distribution("target", text) for text in ((), *((each,) for each in tokens))
        ]
        share = drafted[tokens[0]] * drafted[tokens[1]]
        for verdict, probability in all_outcomes(
            lambda chance, d=tokens, t=target: verify_tree_by_rejection(
                d, (-1, -1), [drafted, drafted], t, chance
            )
        ):
            extend(distribution, models, verdict.tokens, share * probability, 2)

    assert distribution == distribution_of_target(models, 2)
