"""The lines of the table that `specdec bench reliability` writes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    figure: str
    goal: str
    is_met: bool


def spread(seconds: Sequence[float]) -> str:
    """Return the median, and the maximum where there are several."""
    median = f"{statistics.median(seconds):.2f} s"
    return f"{median} (at most {max(seconds):.2f})" if len(seconds) > 1 else median


def counted(kinds: Iterable[str]) -> str:
    """Return each kind with how often it occurs, the most frequent first."""
    return ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).most_common())
