"""The picture of `specdec bench tasks`: a guide's ranges as bars, our figures as marks."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from specdec.loadtest.kit.guide import Range
from specdec.loadtest.kit.pictures import save_picture
from specdec.loadtest.lab.speed.task_tables import Outcomes, expected, label

_BAND = "#d9d9d9"
_STYLES = (
    ("#1f4e79", "o"),
    ("#c0504d", "s"),
    ("#4f8f3a", "^"),
    ("#8064a2", "D"),
    ("#e08e0b", "v"),
    ("#2aa1a8", "P"),
)
_SPREAD = 0.62
"""Share of a task's height over which the drafters' marks are spread."""


def plot_tasks(known: Outcomes, title: str, path: Path) -> None:
    """Draw α̂ on the left and on ÷ off on the right, by task and drafter."""
    tasks, drafters = (list(dict.fromkeys(names)) for names in zip(*known, strict=True))
    figure = Figure(figsize=(13, 1.8 + 0.62 * len(tasks)), layout="constrained")
    figure.suptitle(title, fontsize=11)
    left, right = figure.subplots(1, 2, sharey=True)
    for row, task in enumerate(tasks):
        guide = expected(task)
        _draw_range(left, row, guide.conditional_acceptance)
        _draw_range(right, row, guide.speed_up)
        for number, (drafter, style) in enumerate(zip(drafters, cycle(_STYLES), strict=False)):
            own = known[task, drafter]
            height = row + _SPREAD * (number / max(1, len(drafters) - 1) - 0.5)
            colour, marker = style
            if own.counts.conditional_acceptance is not None:
                left.plot(own.counts.conditional_acceptance, height, marker, color=colour, ms=5)
            gain = own.on_over_off
            right.plot([gain.low, gain.high], [height] * 2, color=colour, linewidth=1.2)
            right.plot(gain.middle, height, marker, color=colour, ms=5)
    left.set_xlim(-0.02, 1)
    left.set_title("α̂: share of compared draft tokens that is accepted", fontsize=10)
    right.axvline(1.0, color="#404040", linewidth=1)
    right.set_xlim(left=min(0.6, right.get_xlim()[0]))
    right.set_title("on ÷ off, tokens/s (line: 95 % interval)", fontsize=10)
    left.set_yticks(range(len(tasks)), [label(task) for task in tasks])
    left.set_ylim(len(tasks) - 0.45, -0.55)
    for axes in (left, right):
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    handles: list[Any] = [Patch(color=_BAND, label="the guide's range")]
    handles += [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=drafter)
        for drafter, (colour, marker) in zip(drafters, cycle(_STYLES), strict=False)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    save_picture(figure, path)


def _draw_range(axes: Any, row: int, band: Range) -> None:
    axes.barh(row, band.high - band.low, left=band.low, height=0.8, color=_BAND)
