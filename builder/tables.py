"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned: text to the left, numbers to the right."""
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
    cells = [row[column] for row in rows[1:] if row[column]]
    return all(cell.replace(",", "").replace(".", "").isdigit() for cell in cells)
