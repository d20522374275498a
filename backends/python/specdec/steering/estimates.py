"""The one estimator of everything that the controller learns: decayed means, shrunk towards priors.

A mean is of a number, such as a share, or of the products of a vector's parts. From those products
follow a linear fit and its residuals: see `solve`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

DECAY_ROUNDS = 512
"""Exponential decay of old evidence: after 512 newer rounds a round weighs 1/e."""

HALF_LIFE_S = 300.0
"""Seconds without new rounds after which a mean has lost half its weight, so that the choice is
explored again."""

PRIOR_ROUNDS = 8
"""Weight of any prior, in rounds."""

Array = npt.NDArray[np.float64]
Value = float | Array
Key = TypeVar("Key", bound=tuple[Hashable, ...])


@dataclass(slots=True)
class Mean:
    """A decayed mean of one quantity."""

    weight: float = 0.0
    """Rounds in the mean, decayed; as of `last_s`."""
    value: Any = 0.0
    """The mean: a float, or a matrix."""
    last_s: float = 0.0
    """Time of the newest round in seconds since the epoch."""

    def add(self, value: Value, now_s: float, num_rounds: int = 1) -> None:
        """Add rounds that all had this value."""
        kept = self.weight_at(now_s) * math.exp(-num_rounds / DECAY_ROUNDS)
        self.weight = kept + num_rounds
        self.value = self.value + num_rounds / self.weight * (value - self.value)
        self.last_s = now_s

    def weight_at(self, now_s: float) -> float:
        """Return the weight after the decay since the newest round."""
        return self.weight * 2 ** (-max(0.0, now_s - self.last_s) / HALF_LIFE_S)

    def limit(self) -> None:
        """Reduce the weight to that of a prior, because the quantity has changed."""
        self.weight = min(self.weight, PRIOR_ROUNDS)


class Means(Generic[Key]):
    """A table of means by key, a tuple of texts and integers. Not thread-safe."""

    def __init__(self) -> None:
        self._means: dict[Key, Mean] = {}

    def __bool__(self) -> bool:
        """Return whether there is any mean."""
        return bool(self._means)

    def add(self, key: Key, value: Value, now_s: float, num_rounds: int = 1) -> None:
        self._means.setdefault(key, Mean()).add(value, now_s, num_rounds)

    def weight(self, key: Key, now_s: float) -> float:
        """Return the decayed number of rounds."""
        mean = self._means.get(key)
        return mean.weight_at(now_s) if mean else 0.0

    def value(self, key: Key) -> Any:
        """Return the mean of a key, or None."""
        mean = self._means.get(key)
        return mean.value if mean else None

    def items(self) -> Iterable[tuple[Key, Mean]]:
        return self._means.items()

    def shrunk(self, keys: Iterable[Key], prior: float, now_s: float) -> tuple[float, float]:
        """Return a mean, each key's shrunk towards the one before it, and the last one's weight."""
        weight = 0.0
        for key in keys:
            mean = self._means.get(key)
            weight = mean.weight_at(now_s) if mean else 0.0
            if mean:
                prior += weight / (weight + PRIOR_ROUNDS) * (mean.value - prior)
        return prior, weight

    def forget(self, is_gone: Callable[[Key], bool]) -> None:
        """Drop the means of some keys."""
        self._means = {key: mean for key, mean in self._means.items() if not is_gone(key)}

    def limit(self, has_changed: Callable[[Key], bool]) -> None:
        """Reduce the weights of some keys: see `Mean.limit`."""
        for key, mean in self._means.items():
            if has_changed(key):
                mean.limit()

    def state(self) -> list[Any]:
        """Return the means as JSON values."""
        return [
            [list(key), mean.weight, np.asarray(mean.value).tolist(), mean.last_s]
            for key, mean in self._means.items()
        ]

    @classmethod
    def of_state(
        cls,
        state: Any,
        key_of: Callable[[Iterable[Any]], Key],
        size: int = 0,
        as_of_s: float | None = None,
    ) -> Means[Key]:
        """Return the means of a `state`, of matrices of `size` rows, or of numbers if it is 0.

        They decay from `as_of_s`, by default from the time of their newest round. Raises ValueError
        or TypeError for anything else.
        """
        found = cls()
        for key, weight, value, last_s in state:
            array = np.array(value, dtype=np.float64).reshape((size, size) if size else ())
            if (
                not np.isfinite([float(weight), float(last_s)]).all()
                or not np.isfinite(array).all()
            ):
                raise ValueError(f"the mean of {key} is not finite")
            since_s = float(last_s) if as_of_s is None else as_of_s
            found._means[key_of(key)] = Mean(
                float(weight), array if size else float(array), since_s
            )
        return found

    def take(self, others: Means[Key], now_s: float, *, is_newer: bool) -> None:
        """Take other means: all if they are newer, otherwise those with more weight."""
        for key, mean in others.items():
            if is_newer or mean.weight_at(now_s) >= self.weight(key, now_s):
                self._means[key] = mean


def usual_features(products: Array) -> Array:
    """Return the usual value of each feature in the rounds that have it; 1 if none has it.

    `products` as in `solve`.
    """
    squares, sums = np.diag(products)[1:], products[1, 1:]
    return np.divide(squares, sums, out=np.ones_like(sums), where=sums > 0)


def solve(products: Array, prior: Array, *, num_loose: int = 0, is_signed: bool = False) -> Array:
    """Return the coefficients of a linear fit, shrunk towards `prior`.

    `products`: [1 + n, 1 + n], sums of the products of (value, n features); the first feature is 1.
    Each coefficient's prior counts as PRIOR_ROUNDS rounds that have the feature. The priors of the
    first `num_loose` coefficients count DECAY_ROUNDS times less, so that these soon follow the
    rounds. Coefficients are not negative unless `is_signed`. Otherwise, if two features correlate,
    one could get a cost that is too large and the other a negative one.
    """
    squared = np.maximum(usual_features(products) ** 2, np.finfo(np.float64).eps)
    ridge: Array = np.asarray(PRIOR_ROUNDS * squared, dtype=np.float64)
    ridge[:num_loose] = ridge[:num_loose] / DECAY_ROUNDS
    system, right = products[1:, 1:] + np.diag(ridge), products[1:, 0] + ridge * prior
    kept = np.ones(len(prior), dtype=bool)
    found = np.linalg.solve(system, right)
    while not is_signed and found.min() < 0:
        kept[found.argmin()] = False
        found = np.zeros(len(prior))
        found[kept] = np.linalg.solve(system[np.ix_(kept, kept)], right[kept])
    return found
