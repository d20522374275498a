"""The lines of the table that `specdec bench reliability` writes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_LISTED = 5
"""Largest number of error texts in one cell of the table."""
MAX_TEXT_CHARS = 300


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: the situation, the figure, the goal, and whether it was met."""

    what: str
    figure: str
    goal: str
    is_met: bool


def spread(seconds: Sequence[float]) -> str:
    """Return the median, with the maximum if there are several values."""
    median = f"{statistics.median(seconds):.2f} s"
    return f"{median} (at most {max(seconds):.2f})" if len(seconds) > 1 else median


def counted(kinds: Iterable[str]) -> str:
    """Return each kind with how often it occurs, the most frequent first."""
    return ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).most_common())


def one_line(text: str) -> str:
    """Return a text that fits into a cell of a Markdown table, cut to MAX_TEXT_CHARS."""
    return " ".join(text.split()).replace("|", "/")[:MAX_TEXT_CHARS]


def listed(texts: Iterable[str]) -> str:
    """Return the first MAX_LISTED different texts in brackets; nothing if there are none."""
    different = sorted(set(texts))
    if not different:
        return ""
    shown = "; ".join(one_line(each) for each in different[:MAX_LISTED])
    num_more = len(different) - MAX_LISTED
    return f" ({shown}{f'; and {num_more} more' if num_more > 0 else ''})"
