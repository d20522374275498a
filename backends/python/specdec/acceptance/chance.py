"""Where the randomness of a verification rule comes from.

The rules ask a `Chance` for every random decision. An engine's chance is a seeded stream; a test's
may be one that walks through every outcome with its exact probability, over the same code.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

Number = Any
"""float, or fractions.Fraction where a law is proven."""
Law = Any
"""A probability for each token of the vocabulary: an array of Numbers."""


class Chance(Protocol):
    """Decides."""

    def happens(self, probability: Number) -> bool:
        """True with this probability, independently of everything before."""

    def draw(self, weights: Law) -> int:
        """A token, with probability proportional to its weight; at least one is above 0."""


class SeededChance:
    """Decisions from (seed, position) alone, independent of the noise that tokens are drawn by."""

    def __init__(self, seed: int, position: int) -> None:
        # The same key as noise.gumbel in another quarter of the counter's range.
        key = np.array([seed, position], dtype=np.uint64)
        bits = np.random.Philox(key=key, counter=np.array([0, 0, 0, 1 << 62], dtype=np.uint64))
        self._random = np.random.Generator(bits)

    def happens(self, probability: Number) -> bool:
        return bool(self._random.random() < float(probability))

    def draw(self, weights: Law) -> int:
        """Draw a token. Raises ValueError where the weights are no distribution."""
        reach = np.cumsum(np.asarray(weights, dtype=np.float64))
        # The search below would return a token outside the vocabulary.
        if not 0.0 < reach[-1] < math.inf:
            raise ValueError(f"no token can be drawn: the weights sum to {reach[-1]}")
        # Among the smallest numbers of float64, the product may be rounded up to the sum itself.
        point = min(self._random.random() * reach[-1], np.nextafter(reach[-1], 0.0))
        return int(np.searchsorted(reach, point, side="right"))
