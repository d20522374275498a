"""Estimates of α from counts of draft tokens, with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specdec.estimates.beta import beta_quantile

PRIOR = 0.5
"""Jeffreys' prior of a proportion: half an accepted and half a rejected draft token."""


@dataclass(frozen=True, slots=True)
class AcceptanceCounts:
    """Counts of draft tokens; not whole numbers if they are weighted by age.

    Tokens after the first rejected one were never compared with the target. A round with k draft
    tokens and a accepted ones compared min(a + 1, k). Accepted ÷ compared is the maximum-likelihood
    estimate for a geometric distribution cut off at k.
    """

    num_accepted: float = 0.0
    num_compared: float = 0.0
    """Draft tokens that were compared with the target."""

    def __add__(self, other: AcceptanceCounts) -> AcceptanceCounts:
        return AcceptanceCounts(
            self.num_accepted + other.num_accepted, self.num_compared + other.num_compared
        )

    @property
    def alpha(self) -> float | None:
        """The estimate α̂ = Σ a / Σ min(a + 1, k); None if no tokens were compared."""
        return self.num_accepted / self.num_compared if self.num_compared else None

    @property
    def standard_error(self) -> float | None:
        """√(α̂ (1 − α̂) / compared), as if the draft tokens of a request were independent."""
        alpha = self.alpha
        return None if alpha is None else math.sqrt(alpha * (1.0 - alpha) / self.num_compared)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the ends between which α lies with this probability, by its posterior."""
        shapes = self.num_accepted + PRIOR, self.num_compared - self.num_accepted + PRIOR
        tail = (1.0 - confidence) / 2.0
        return beta_quantile(tail, *shapes), beta_quantile(1.0 - tail, *shapes)


def acceptance_by_position(histograms: Mapping[int, Sequence[int]]) -> tuple[AcceptanceCounts, ...]:
    """Return the counts by position of a draft, each conditional on the positions before it.

    `histograms[k][a]` is the number of rounds with k draft tokens and a accepted ones, as in the
    response's `acceptance_histogram_by_draft_length`. The sum over positions gives the overall α̂.
    """
    positions = [AcceptanceCounts()] * max(histograms, default=0)
    for num_draft_tokens, counts in histograms.items():
        for position in range(num_draft_tokens):
            # Compared here if all before were accepted; accepted here if more than those were.
            own = AcceptanceCounts(sum(counts[position + 1 :]), sum(counts[position:]))
            positions[position] += own
    return tuple(positions)
