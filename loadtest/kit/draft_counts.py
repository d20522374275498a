"""Counts of the draft tokens of one answer, or of several together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from specdec.clients.figures import num_compared


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Sums over answers; the rates are ratios of sums, None where nothing was drafted."""

    num_tokens: int
    num_rounds: int
    num_steps: int
    """Rounds with a draft."""
    num_drafted: int
    num_accepted: int
    num_compared: int
    """Draft tokens compared with the target: the accepted ones and the first rejected one."""

    @property
    def tau(self) -> float | None:
        """Mean tokens of a round with a draft, the target's own included."""
        return 1 + self.num_accepted / self.num_steps if self.num_steps else None

    @property
    def conditional_acceptance(self) -> float | None:
        """α̂ = Σ accepted / Σ min(accepted + 1, k), defined for chains only."""
        return self.num_accepted / self.num_compared if self.num_compared else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted ÷ drafted tokens, which falls with k at the same α̂."""
        return self.num_accepted / self.num_drafted if self.num_drafted else None

    @property
    def drafted_share(self) -> float:
        """Share of the rounds that have a draft."""
        return self.num_steps / self.num_rounds

    @property
    def tokens_per_round(self) -> float:
        """Mean tokens of all rounds."""
        return self.num_tokens / self.num_rounds


def counts_of_answer(num_tokens: int, statistics: Mapping[str, Any]) -> DraftCounts:
    """Return the counts of one answer from its `speculative_decoding` statistics."""
    return DraftCounts(
        num_tokens=num_tokens,
        num_rounds=statistics["round_times"]["num_rounds"] + 1,
        num_steps=statistics["num_spec_steps"],
        num_drafted=statistics["num_draft_tokens"],
        num_accepted=statistics["num_accepted_draft_tokens"],
        num_compared=num_compared(statistics) or 0,
    )


def sum_counts(counts: Iterable[DraftCounts]) -> DraftCounts:
    """Return the sum of several counts."""
    known = list(counts)
    names = [item.name for item in fields(DraftCounts)]
    return DraftCounts(**{name: sum(getattr(each, name) for each in known) for name in names})
