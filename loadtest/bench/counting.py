"""What became of the drafts of one answer, or of several together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Sums over answers; the rates are ratios of sums, None where nothing was drafted."""

    num_tokens: int
    num_rounds: int
    num_steps: int
    """Rounds with a draft."""
    num_drafted: int
    num_accepted: int
    num_reached: int
    """Drafted tokens that were judged: those before the first that fell, and that one."""

    @property
    def tau(self) -> float | None:
        """Mean tokens of a round with a draft, the target's own included."""
        return 1 + self.num_accepted / self.num_steps if self.num_steps else None

    @property
    def conditional_acceptance(self) -> float | None:
        """α̂ = Σ accepted / Σ min(accepted + 1, k), of chains."""
        return self.num_accepted / self.num_reached if self.num_reached else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted ÷ drafted; falls with k at the same α̂."""
        return self.num_accepted / self.num_drafted if self.num_drafted else None

    @property
    def drafted_share(self) -> float:
        """Of the rounds, those with a draft."""
        return self.num_steps / self.num_rounds

    @property
    def tokens_per_round(self) -> float:
        return self.num_tokens / self.num_rounds


COUNTS = tuple(item.name for item in fields(DraftCounts))


def count(num_tokens: int, known: Mapping[str, Any]) -> DraftCounts:
    """Of one answer; `known` is the response's `speculative_decoding`."""
    histograms = known.get("acceptance_histogram_by_draft_length", {})
    return DraftCounts(
        num_tokens=num_tokens,
        num_rounds=known["round_times"]["num_rounds"] + 1,
        num_steps=known["num_spec_steps"],
        num_drafted=known["num_draft_tokens"],
        num_accepted=known["num_accepted_draft_tokens"],
        num_reached=sum(
            min(accepted + 1, int(length)) * times
            for length, counts in histograms.items()
            for accepted, times in enumerate(counts)
        ),
    )


def together(counts: Iterable[DraftCounts]) -> DraftCounts:
    """The sum."""
    known = list(counts)
    return DraftCounts(**{name: sum(getattr(each, name) for each in known) for name in COUNTS})
