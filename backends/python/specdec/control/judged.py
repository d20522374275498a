"""α from rounds: how many guesses were judged, how many of them stood, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specdec.control.beta import beta_quantile

PRIOR = 0.5
"""Jeffreys' prior of a proportion: half a guess that stood and half a one that fell."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Judged guesses; counts may be weighted by age, and so need not be whole.

    Guesses behind the first one that fell were never compared with anything: of a round with k
    guesses that kept a, min(a + 1, k) were judged. Their ratio is the maximum-likelihood estimate
    of a geometric law that is cut off at k.
    """

    num_accepted: float = 0.0
    num_judged: float = 0.0

    def __add__(self, other: Acceptance) -> Acceptance:
        return Acceptance(
            self.num_accepted + other.num_accepted, self.num_judged + other.num_judged
        )

    @property
    def alpha(self) -> float | None:
        """α̂ = Σ a / Σ min(a + 1, k); None while nothing was judged."""
        return self.num_accepted / self.num_judged if self.num_judged else None

    @property
    def standard_error(self) -> float | None:
        """√(α̂ (1 − α̂) / judged), as if guesses of a request were independent."""
        alpha = self.alpha
        return None if alpha is None else math.sqrt(alpha * (1.0 - alpha) / self.num_judged)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Between which α lies with this probability, by its posterior (`PRIOR`)."""
        shapes = self.num_accepted + PRIOR, self.num_judged - self.num_accepted + PRIOR
        tail = (1.0 - confidence) / 2.0
        return beta_quantile(tail, *shapes), beta_quantile(1.0 - tail, *shapes)


def round_acceptance(num_accepted: int, num_draft_tokens: int) -> Acceptance:
    """Of one round that kept `num_accepted` of its guesses."""
    return Acceptance(num_accepted, min(num_accepted + 1, num_draft_tokens))


def acceptance_by_position(histograms: Mapping[int, Sequence[int]]) -> tuple[Acceptance, ...]:
    """Of the first guess of a round, the second, …: conditional on those before it.

    `histograms[k][a]` is how many rounds with k guesses kept a of them, the response's
    `acceptance_histogram_by_draft_length`. The sum over positions is the estimate over all.
    """
    positions = [Acceptance()] * max(histograms, default=0)
    for num_draft_tokens, counts in histograms.items():
        for place in range(num_draft_tokens):
            # Judged here if all before it stood; one more stood if more were kept.
            own = Acceptance(sum(counts[place + 1 :]), sum(counts[place:]))
            positions[place] += own
    return tuple(positions)
