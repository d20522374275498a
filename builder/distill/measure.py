"""Acceptance arithmetic: the accepted-count histogram of rounds, and the rates derived from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Acceptance:
    """Histogram over complete rounds: `histogram[a]` rounds accepted a of num_draft tokens.

    Rounds cut short by the answer's end are counted apart in `num_cut` and enter no rate.
    """

    num_draft: int
    histogram: tuple[int, ...]
    num_cut: int = 0

    @property
    def num_rounds(self) -> int:
        """Complete rounds."""
        return sum(self.histogram)

    @property
    def accepted(self) -> int:
        """Accepted draft tokens over all complete rounds."""
        return sum(a * count for a, count in enumerate(self.histogram))

    @property
    def tau(self) -> float:
        """Mean tokens per round, the target's own token included."""
        return 1 + self.accepted / max(self.num_rounds, 1)

    @property
    def alpha(self) -> float:
        """The conditional acceptance per token: sum accepted / sum min(accepted + 1, k)."""
        trials = sum(min(a + 1, self.num_draft) * count for a, count in enumerate(self.histogram))
        return self.accepted / max(trials, 1)

    @property
    def accepted_over_drafted(self) -> float:
        """(tau - 1) / k; falls with k at the same alpha."""
        return self.accepted / max(self.num_rounds * self.num_draft, 1)


def rounds(matches: Sequence[bool], num_draft: int, start: int = 1) -> Acceptance:
    """Greedy rounds over one answer.

    matches[i]: the draft, given the target's tokens before i, proposes the target's token i.
    While a draft token is accepted the draft's next input is the target's own token, so for a
    draft without the target's states this walk equals chaining the draft from each round's
    position. Token 0 comes from the target's prefill, hence start = 1.
    """
    histogram = [0] * (num_draft + 1)
    pos, cut = start, 0
    while pos < len(matches):
        room = len(matches) - pos
        accepted = 0
        while accepted < min(num_draft, room) and matches[pos + accepted]:
            accepted += 1
        if accepted == room and room <= num_draft:
            cut += 1  # the answer ended inside this round
        else:
            histogram[accepted] += 1
        pos += accepted + 1
    return Acceptance(num_draft, tuple(histogram), cut)


def walk(accepted: Sequence[int], num_draft: int) -> Acceptance:
    """Greedy rounds over one answer of a draft that reads the target's states.

    accepted[i]: how many of its guesses behind answer token i agree with the answer.
    """
    histogram = [0] * (num_draft + 1)
    at, cut = 0, 0
    while at < len(accepted):
        room = len(accepted) - at
        if accepted[at] == room and room <= num_draft:
            cut += 1  # the answer ended inside this round
        else:
            histogram[min(accepted[at], num_draft)] += 1
        at += accepted[at] + 1
    return Acceptance(num_draft, tuple(histogram), cut)


def total(parts: Iterable[Acceptance], num_draft: int) -> Acceptance:
    """The sum of histograms (a ratio of sums, not a mean of ratios)."""
    histogram, cut = [0] * (num_draft + 1), 0
    for part in parts:
        cut += part.num_cut
        for accepted, count in enumerate(part.histogram):
            histogram[accepted] += count
    return Acceptance(num_draft, tuple(histogram), cut)
