"""Draws the packages of specdec, with an arrow down to each package that one imports.

python -m tests.checks.packages          # writes docs/packages.svg
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from tests.checks.imports import ROOT, Imports, depths, grouped, imports_of, reduced

PICTURE = ROOT / "docs/packages.svg"
NOT_DRAWN = ("__init__", "__main__", "cli")
"""Modules without arrows; `cli` loads the module of a command by its name."""
NUM_SWEEPS = 24
"""Passes over the rows that move each box towards its neighbours; more change nothing visible."""

ROW_PX = 62
BOX_PX = 28
"""Height of a box."""
LETTER_PX = 8.0
GAP_PX = 26.0
LANE_PX = 6.0
"""Width of an arrow where it passes a row."""
MARGIN_PX = 16.0

_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
    'viewBox="0 0 {width} {height}" role="img" '
    'aria-label="The packages of specdec; each arrow goes down to a package that is imported">\n'
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L8 4L0 8z" fill="#57606a"/></marker></defs>'
)
_STYLE = (
    'text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;'
    "fill:#1f2328;text-anchor:middle}rect.box{fill:#ddf4ff;stroke:#54aeff}"
    "path.arrow{fill:none;stroke:#57606a;stroke-width:1.2;marker-end:url(#tip)}"
)


@dataclass(frozen=True)
class Layout:
    """The rows of boxes, from the top, and the middle of each box."""

    rows: list[list[str]]
    x_px: Mapping[str, float]
    """Middles of boxes and of arrows where they pass a row, by name."""
    arrows: Mapping[tuple[str, str], list[str]]
    """The names along each arrow, from the importer down."""


def drawing(imports: Imports) -> str:
    """Return the SVG of packages and their imports. Raises graphlib.CycleError for a circle.

    An import that follows from others is left out.
    """
    return _svg(_laid_out(reduced(imports)))


def drawn_packages() -> Imports:
    """Return the packages of specdec and its modules without a package, with their imports."""
    imports = grouped(imports_of("specdec", ROOT / "backends/python"), "specdec")
    return {
        name: below.difference(NOT_DRAWN)
        for name, below in imports.items()
        if name not in NOT_DRAWN
    }


def _heights(imports: Imports) -> dict[str, int]:
    """Return the row of each package, counted from the bottom.

    A package stands as low as it can, or just below its importers if that makes no arrows longer.
    """
    heights = depths(imports)
    for name in sorted(heights, key=lambda name: (-heights[name], name)):
        importers = [heights[other] for other, below in imports.items() if name in below]
        if importers and len(importers) >= len(imports[name]):
            heights[name] = min(importers) - 1
    return heights


def _laid_out(imports: Imports) -> Layout:
    heights = _heights(imports)
    rows: list[list[str]] = [[] for _ in range(max(heights.values()) + 1)]
    for name in sorted(imports):
        rows[heights[name]].append(name)
    arrows = {}
    for name in sorted(imports):
        for other in sorted(imports[name]):
            passed = range(heights[name] - 1, heights[other], -1)
            lanes = [f"{name}>{other}>{height}" for height in passed]
            for height, lane in zip(passed, lanes, strict=True):
                rows[height].append(lane)
            arrows[name, other] = [name, *lanes, other]
    return Layout(rows[::-1], _positions(rows[::-1], arrows.values()), arrows)


def _positions(rows: list[list[str]], arrows: Iterable[list[str]]) -> dict[str, float]:
    """Order each row so that arrows are short; return the middle of each box.

    In turns, each box goes to the mean of those that it is connected with in the row above, and
    then below. Source: the barycentre heuristic of Sugiyama et al. 1981.
    """
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for arrow in arrows:
        for upper, lower in pairwise(arrow):
            above.setdefault(lower, []).append(upper)
            below.setdefault(upper, []).append(lower)
    x_px: dict[str, float] = {}
    for row in rows:
        x_px |= _spread(row, dict.fromkeys(row, 0.0))
    for sweep in range(NUM_SWEEPS):
        goes_down = sweep % 2 == 0
        neighbours = above if goes_down else below
        for row in rows if goes_down else rows[::-1]:
            wanted = {
                name: sum(x_px[each] for each in near) / len(near)
                if (near := neighbours.get(name))
                else x_px[name]
                for name in row
            }
            x_px |= _spread(row, wanted)
    left = min(x - _width_px(name) / 2 for name, x in x_px.items())
    return {name: x - left + MARGIN_PX for name, x in x_px.items()}


def _spread(row: list[str], wanted: Mapping[str, float]) -> dict[str, float]:
    """Return positions near the wanted ones, at which no boxes of a row touch."""
    placed: dict[str, float] = {}
    edge = float("-inf")
    for name in sorted(row, key=lambda name: (wanted[name], name)):
        half = _width_px(name) / 2
        placed[name] = max(wanted[name], edge + GAP_PX + half)
        edge = placed[name] + half
    shift = sum(wanted[name] - placed[name] for name in row) / len(row)
    return {name: x + shift for name, x in placed.items()}


def _width_px(name: str) -> float:
    return LANE_PX if ">" in name else len(name) * LETTER_PX + 20


def _svg(layout: Layout) -> str:
    boxes = [name for row in layout.rows for name in row if ">" not in name]
    top = {name: MARGIN_PX + n * ROW_PX for n, row in enumerate(layout.rows) for name in row}
    width = max(x + _width_px(name) / 2 for name, x in layout.x_px.items()) + MARGIN_PX
    height = (len(layout.rows) - 1) * ROW_PX + BOX_PX + 2 * MARGIN_PX
    lines = [
        _HEAD.format(width=f"{width:.0f}", height=f"{height:.0f}"),
        f"<style>{_STYLE}</style>",
        '<rect width="100%" height="100%" fill="#ffffff" rx="6"/>',
    ]
    lines += [_arrow(arrow, layout.x_px, top) for arrow in layout.arrows.values()]
    for name in boxes:
        x, y, box_px = layout.x_px[name], top[name], _width_px(name)
        lines.append(
            f'<rect class="box" x="{x - box_px / 2:.1f}" y="{y:.0f}" width="{box_px:.0f}" '
            f'height="{BOX_PX}" rx="5"/><text x="{x:.1f}" y="{y + 18:.0f}">{name}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def _arrow(names: list[str], x_px: Mapping[str, float], top: Mapping[str, float]) -> str:
    """Return a line that bends between the rows and runs straight down where it passes one."""
    x, y = x_px[names[0]], top[names[0]] + BOX_PX
    path = f"M{x:.1f} {y:.0f}"
    for name in names[1:]:
        next_x, next_y = x_px[name], top[name]
        middle = (y + next_y) / 2
        path += f"C{x:.1f} {middle:.0f} {next_x:.1f} {middle:.0f} {next_x:.1f} {next_y:.0f}"
        x, y = next_x, next_y + BOX_PX
        if name != names[-1]:
            path += f"V{y:.0f}"
    return f'<path class="arrow" d="{path}"/>'


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(drawing(drawn_packages()), "utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
