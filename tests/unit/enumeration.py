"""Every outcome of a verification, with its exact probability: the tools of a proof."""

from collections import defaultdict
from fractions import Fraction

import numpy as np


class Walk:
    """A chance that takes the decisions of one path, and knows the path's probability."""

    def __init__(self, path):
        self._path = path
        self._taken = 0
        self.probability = Fraction(1)
        self.open: list[int] = []
        """At the first decision beyond the path: the outcomes that it can have."""

    def happens(self, probability):
        return self._decide([1 - Fraction(probability), Fraction(probability)]) == 1

    def draw(self, weights):
        total = sum(weights)
        assert total > 0, "a draw from nothing"
        return self._decide([Fraction(weight) / total for weight in weights])

    def _decide(self, law):
        if self._taken == len(self._path):
            self.open = [outcome for outcome, share in enumerate(law) if share]
            raise StopIteration
        outcome = self._path[self._taken]
        self._taken += 1
        self.probability *= law[outcome]
        return outcome


def all_outcomes(run):
    """Yield (result, probability) of every way that `run(chance)` can go."""
    waiting = [()]
    while waiting:
        path = waiting.pop()
        walk = Walk(path)
        try:
            result = run(walk)
        except StopIteration:
            waiting += [(*path, outcome) for outcome in walk.open]
        else:
            yield result, walk.probability


class Models:
    """A target and a draft with a random law of small fractions behind every text."""

    def __init__(self, seed, vocab_size, zeros=True):
        self._vocab_size = vocab_size
        self._seed = seed
        self._lowest = 0 if zeros else 1

    def law(self, name, text):
        random = np.random.default_rng([self._seed, *name.encode(), len(text), *text])
        weights = random.integers(self._lowest, 5, self._vocab_size)
        weights[random.integers(self._vocab_size)] += 1
        return np.array([Fraction(int(w), int(weights.sum())) for w in weights], dtype=object)


def extend(law, models, text, share, length):
    """Let the target finish the text, in every way that it can."""
    if len(text) == length:
        law[text] += share
        return
    for token, probability in enumerate(models.law("target", text)):
        if probability:
            extend(law, models, (*text, token), share * probability, length)


def law_of_target(models, length):
    """Return {text: probability} of the target alone."""
    law = defaultdict(Fraction)
    extend(law, models, (), Fraction(1), length)
    return law
