"""Counting the accepted draft tokens of rounds, and the rates that follow from the histogram."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Acceptance:
    """A histogram of complete rounds: `histogram[a]` rounds accepted a of num_draft tokens.

    Rounds that the end of the answer cut short are counted in `num_cut` and in no rate.
    """

    num_draft: int
    histogram: tuple[int, ...]
    num_cut: int = 0

    @property
    def num_rounds(self) -> int:
        """Number of complete rounds."""
        return sum(self.histogram)

    @property
    def accepted(self) -> int:
        """Accepted draft tokens in all complete rounds."""
        return sum(a * count for a, count in enumerate(self.histogram))

    @property
    def tau(self) -> float:
        """Mean tokens per round, the target's own token included."""
        return 1 + self.accepted / max(self.num_rounds, 1)

    @property
    def alpha(self) -> float:
        """Acceptance estimate α̂: sum of accepted / sum of min(accepted + 1, k)."""
        trials = sum(min(a + 1, self.num_draft) * count for a, count in enumerate(self.histogram))
        return self.accepted / max(trials, 1)

    @property
    def accepted_over_drafted(self) -> float:
        """Accepted ÷ drafted, which is (tau - 1) / k; it falls with k at the same alpha."""
        return self.accepted / max(self.num_rounds * self.num_draft, 1)


def rounds(matches: Sequence[bool], num_draft: int, start: int = 1) -> Acceptance:
    """Count the greedy rounds over one answer, for a draft that reads tokens only.

    `matches[i]`: whether the draft, given the target's tokens before i, proposes the target's token
    i. Accepted draft tokens are the target's tokens. A draft that continues its own tokens
    therefore reads the same tokens up to the first rejection, so both ways count the same rounds.
    Token 0 comes from the target's pass over the prompt, hence start = 1.
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
    """Count the greedy rounds over one answer, for a draft that reads the target's states.

    `accepted[i]`: how many of its draft tokens after answer token i agree with the answer.
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
    """Return the sum of the histograms; its rates are ratios of sums, not means of ratios."""
    histogram, cut = [0] * (num_draft + 1), 0
    for part in parts:
        cut += part.num_cut
        for accepted, count in enumerate(part.histogram):
            histogram[accepted] += count
    return Acceptance(num_draft, tuple(histogram), cut)
