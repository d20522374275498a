"""Text tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as text, the first being the header; numbers are aligned to the right.

    All rows have the same number of cells.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if _is_number(column, rows) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def _is_number(column: int, rows: Sequence[Sequence[str]]) -> bool:
    """Return whether all cells of the column, except header and empty ones, are numbers."""
    cells = [row[column] for row in rows[1:] if row[column]]
    return all(cell.replace(",", "").replace(".", "").isdigit() for cell in cells)
