"""Linear fits and means in which older samples count less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MEMORY = 1 - 1 / 512
"""Decay of a sample's weight in a fit with each newer one."""

PRIOR_WEIGHT = 6.0
"""Weight of a fit's prior, such as the fit over all loads, in samples."""

LOOSE = 0.01
"""Share of PRIOR_WEIGHT for loose coefficients, which soon follow the samples."""

REFIT_EVERY = 8
"""Samples from one solution of a fit to the next; a new fit is solved after each sample."""

RECENT_SAMPLES = 256
"""Samples from which on each new one counts 1/RECENT_SAMPLES in a mean."""

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Fit:
    """Least squares with decaying samples and a prior.

    A sample's seconds may include a part that another fit explains, with `num_offsets` features.
    That part is subtracted when this fit is solved, because the other fit is better by then.
    """

    def __init__(self, size: int, num_offsets: int = 0) -> None:
        self.products = np.zeros((size, size))
        self.moments = np.zeros(size)
        self.crossed = np.zeros((size, num_offsets))
        self.num_samples = 0

    @classmethod
    def total(cls, fits: Sequence[Fit]) -> Fit:
        """Return a fit with the samples of all `fits`, at least one; each keeps its own decay.

        The fits must have no offsets.
        """
        whole = cls(len(fits[0].moments))
        for fit in fits:
            whole.products += fit.products
            whole.moments += fit.moments
            whole.num_samples += fit.num_samples
        return whole

    @property
    def is_due(self) -> bool:
        """Whether the fit should be solved again with its latest sample."""
        return self.num_samples % REFIT_EVERY == 0 or self.num_samples < REFIT_EVERY

    def add(self, features: Vector, seconds: float, inside: Vector | None = None) -> None:
        """Add a sample; `inside`: features of the part that another fit explains."""
        self.products *= MEMORY
        self.moments *= MEMORY
        self.products += np.outer(features, features)
        self.moments += seconds * features
        if inside is not None:
            self.crossed *= MEMORY
            self.crossed += np.outer(features, inside)
        self.num_samples += 1

    def without(self, offsets: Vector) -> Fit:
        """Return the fit without the other fit's part, by that fit's coefficients `offsets`."""
        rest = Fit(len(self.moments))
        rest.products, rest.num_samples = self.products, self.num_samples
        rest.moments = self.moments - self.crossed @ offsets
        return rest

    def solve(self, prior: Vector, is_bounded: Mask, *, num_loose: int = 0) -> Vector:
        """Return the coefficients, not negative where `is_bounded`; without samples, the prior.

        The first feature must be 1 in every sample. A prior is weighed by those samples in which
        its feature is not 0.

        The first `num_loose` coefficients are hardly bound to their prior. Plain steps hardly vary
        in any feature: if the first coefficient did not give way, the others would leave their
        priors.

        Features correlate, as rows and requests do. A coefficient may come out negative because
        another is too large, so it is left out and the others are fitted again.
        """
        # A ridge for each feature: one that is always 0 keeps its prior.
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
    """A mean in seconds, in which older samples decay."""

    mean_s: float = 0.0
    num_samples: int = 0

    def add(self, seconds: float) -> None:
        self.num_samples += 1
        self.mean_s += (seconds - self.mean_s) * max(1 / self.num_samples, 1 / RECENT_SAMPLES)
