"""Means and lines through the recent past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MEMORY = 1 - 1 / 512
"""Weight of a sample against the next one's, in a fit."""

PRIOR_WEIGHT = 6.0
"""What is known from all loads together counts like so many samples of one load."""

LOOSE = 0.01
"""Of that weight, for coefficients that give way."""

REFIT_EVERY = 8
"""Samples; of the first ones each."""

RECENT_SAMPLES = 256
"""That a mean remembers."""

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Fit:
    """Least squares with decay, drawn to a prior.

    A part of each sample's seconds may be something else's, whose coefficients are known better
    when the fit is solved than when the sample came: `num_offsets` of them.
    """

    def __init__(self, size: int, num_offsets: int = 0) -> None:
        self.products = np.zeros((size, size))
        self.moments = np.zeros(size)
        self.crossed = np.zeros((size, num_offsets))
        self.num_samples = 0

    @classmethod
    def total(cls, fits: Sequence[Fit]) -> Fit:
        """Of at least one: as if a fit had all their samples, each decayed among its own."""
        whole = cls(len(fits[0].moments))
        for fit in fits:
            whole.products += fit.products
            whole.moments += fit.moments
            whole.num_samples += fit.num_samples
        return whole

    @property
    def is_due(self) -> bool:
        """With its last sample it should be solved anew."""
        return self.num_samples % REFIT_EVERY == 0 or self.num_samples < REFIT_EVERY

    def add(self, features: Vector, seconds: float, inside: Vector | None = None) -> None:
        """`inside`: features of the something else."""
        self.products *= MEMORY
        self.moments *= MEMORY
        self.products += np.outer(features, features)
        self.moments += seconds * features
        if inside is not None:
            self.crossed *= MEMORY
            self.crossed += np.outer(features, inside)
        self.num_samples += 1

    def without(self, offsets: Vector) -> Fit:
        """Less what the something else took by these coefficients of it."""
        rest = Fit(len(self.moments))
        rest.products, rest.num_samples = self.products, self.num_samples
        rest.moments = self.moments - self.crossed @ offsets
        return rest

    def solve(self, prior: Vector, is_bounded: Mask, *, num_loose: int = 0) -> Vector:
        """Coefficients, the bounded ones not negative; of a fit without samples the prior.

        `num_loose`: the first so many are hardly drawn to their prior. Where nothing else varies,
        as in plain steps, the others keep theirs only if the first gives way.
        The first feature is 1 in every sample. Of another that is 0 in most, only those tell in
        which it is not: they alone stand against its prior.
        Features go together, as a load's rows and requests do: one that came out negative beside
        another that is as much too large must not be cut off, the others are fitted without it.
        """
        # Ridge by feature: a column that is always 0 keeps its prior.
        squares, sums = np.diag(self.products), self.products[0]
        usual = np.divide(squares, sums, out=np.ones_like(sums), where=sums > 0)
        scale = np.maximum(usual**2, 1e-12)
        ridge = PRIOR_WEIGHT * scale
        ridge[:num_loose] *= LOOSE
        system, right = self.products + np.diag(ridge), self.moments + ridge * prior
        kept = np.ones(len(prior), dtype=bool)
        found = np.linalg.solve(system, right)
        while (negative := np.where(kept & is_bounded, found, 0.0)).min() < 0:
            kept[negative.argmin()] = False
            found = np.zeros(len(prior))
            found[kept] = np.linalg.solve(system[np.ix_(kept, kept)], right[kept])
        return found


@dataclass(slots=True)
class Recent:
    """A mean over the recent past."""

    mean_s: float = 0.0
    num_samples: int = 0

    def add(self, seconds: float) -> None:
        self.num_samples += 1
        self.mean_s += (seconds - self.mean_s) * max(1 / self.num_samples, 1 / RECENT_SAMPLES)
