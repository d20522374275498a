"""Tools to prove verification rules: all outcomes of a run, with their exact probabilities."""

from collections import defaultdict
from fractions import Fraction

import numpy as np


class Walk:
    """A `Chance` that makes the decisions of one path, and multiplies their probabilities.

    A path is a tuple of outcomes, one for each decision. The first decision after its end raises
    StopIteration. `probability` is the product for the decisions made so far.
    """

    def __init__(self, path):
        self._path = path
        self._taken = 0
        self.probability = Fraction(1)
        self.open: list[int] = []
        """Possible outcomes of the first decision after the path's end; empty before that one."""

    def happens(self, probability):
        return self._decide([1 - Fraction(probability), Fraction(probability)]) == 1

    def draw(self, weights):
        total = sum(weights)
        assert total > 0, "a draw from nothing"
        return self._decide([Fraction(weight) / total for weight in weights])

    def _decide(self, distribution):
        if self._taken == len(self._path):
            self.open = [outcome for outcome, share in enumerate(distribution) if share]
            raise StopIteration
        outcome = self._path[self._taken]
        self._taken += 1
        self.probability *= distribution[outcome]
        return outcome


def all_outcomes(run):
    """Yield (result, probability) for every sequence of decisions that `run(chance)` can meet.

    `run` is called once for each of them; the probabilities are fractions.
    """
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
    """A target and a draft model with random distributions after each text.

    `distribution(name, text)` is that of the model `name` after `text`: [vocab_size] small
    fractions. Without `zeros` every token has a probability above 0.
    """

    def __init__(self, seed, vocab_size, zeros=True):
        self._vocab_size = vocab_size
        self._seed = seed
        self._lowest = 0 if zeros else 1

    def distribution(self, name, text):
        random = np.random.default_rng([self._seed, *name.encode(), len(text), *text])
        weights = random.integers(self._lowest, 5, self._vocab_size)
        weights[random.integers(self._vocab_size)] += 1
        return np.array([Fraction(int(w), int(weights.sum())) for w in weights], dtype=object)


def extend(distribution, models, text, share, length):
    """Add to `distribution` the probability of each text of `length` tokens after `text`.

    `share` is the probability of `text`. The target draws all tokens after it.
    """
    if len(text) == length:
        distribution[text] += share
        return
    for token, probability in enumerate(models.distribution("target", text)):
        if probability:
            extend(distribution, models, (*text, token), share * probability, length)


def distribution_of_target(models, length):
    """Return {text: probability} for all texts of `length` tokens that the target generates."""
    distribution = defaultdict(Fraction)
    extend(distribution, models, (), Fraction(1), length)
    return distribution
