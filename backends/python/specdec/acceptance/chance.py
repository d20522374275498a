"""The source of random decisions for verification rules.

The rules ask a `Chance` for each random decision. Engines pass a seeded stream of random numbers.
Tests pass one that goes through all outcomes with their exact probabilities, and so prove the same
code that runs in the engine.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

Number = Any
"""A float, or a fractions.Fraction in tests that prove a rule exactly."""
Distribution = Any
"""A distribution: an array [vocab] with a probability (a Number) for each token."""


class Chance(Protocol):
    """The interface for the random decisions of a verification rule."""

    def happens(self, probability: Number) -> bool:
        """Return True with this probability, independently of all earlier decisions."""

    def draw(self, weights: Distribution) -> int:
        """Return a token with probability proportional to its weight.

        At least one weight is above 0.
        """


class SeededChance:
    """Random decisions that depend on (seed, position) alone.

    They are independent of the noise with which tokens are drawn (noise.py).
    """

    def __init__(self, seed: int, position: int) -> None:
        # noise.gumbel uses the same key, but its counter starts at 0 and never gets here.
        key = np.array([seed, position], dtype=np.uint64)
        bits = np.random.Philox(key=key, counter=np.array([0, 0, 0, 1 << 62], dtype=np.uint64))
        self._random = np.random.Generator(bits)

    def happens(self, probability: Number) -> bool:
        return bool(self._random.random() < float(probability))

    def draw(self, weights: Distribution) -> int:
        """Return a token with probability proportional to its weight.

        Raise ValueError if the sum of the weights is 0, infinite or NaN.
        """
        reach = np.cumsum(np.asarray(weights, dtype=np.float64))
        # With such a sum the search below would return a token outside the vocabulary.
        if not 0.0 < reach[-1] < math.inf:
            raise ValueError(f"no token can be drawn: the weights sum to {reach[-1]}")
        # If the sum is a subnormal float64, the product may round up to the sum itself.
        point = min(self._random.random() * reach[-1], np.nextafter(reach[-1], 0.0))
        return int(np.searchsorted(reach, point, side="right"))
