"""The picture of `specdec evaluate`: acceptance and gain by domain, predicted beside measured."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from specdec.loadtest.evaluate.advice import GUIDE_DEPLOY, GUIDE_SKIP
from specdec.loadtest.evaluate.findings import ArmFinding, Finding
from specdec.loadtest.kit.pictures import save_picture
from specdec.loadtest.kit.ratios import Ratio

_COLOURS = ("#1f4e79", "#c0504d", "#4f8f3a", "#8064a2", "#e08e0b", "#2aa1a8")
_HEIGHT = 0.7
"""The part of a domain's row, from 0 to 1, over which its marks are spread."""
_MEASURED, _PREDICTED, _RATE = "o", "D", "x"


def plot_findings(found: list[Finding], title: str, path: Path) -> None:
    """Draw α̂ and the guide's α on the left, and each arm's gain on the right."""
    domains = list(dict.fromkeys(each.domain for each in found))
    names = list(dict.fromkeys(arm.arm for each in found for arm in each.arms))
    figure = Figure(figsize=(12, 2.0 + 0.3 * len(names) * len(domains)), layout="constrained")
    figure.suptitle(title, fontsize=10)
    left, right = figure.subplots(1, 2, sharey=True)
    for colour, (number, name) in zip(cycle(_COLOURS), enumerate(names), strict=False):
        for finding in found:
            arm = next((each for each in finding.arms if each.arm == name), None)
            if arm is not None:
                offset = _HEIGHT * ((number + 0.5) / len(names) - 0.5)
                _draw(left, right, domains.index(finding.domain) + offset, finding, arm, colour)
    for threshold in (GUIDE_SKIP, GUIDE_DEPLOY):
        left.axvline(threshold, color="#b0b0b0", linewidth=1, linestyle="--")
    right.axvline(1.0, color="#404040", linewidth=1)
    left.set_xlim(0, 1)
    left.set_title("acceptance (dashed: the guide's limits of ×, 0.5 and 0.6)", fontsize=10)
    right.set_title("gain over no speculation (line: 95 % interval)", fontsize=10)
    left.set_yticks(range(len(domains)), [each.replace("_", " ") for each in domains])
    left.set_ylim(len(domains) - 0.45, -0.55)
    for axes in (left, right):
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    handles: list[Any] = [
        Line2D([], [], color=colour, marker="s", linestyle="", label=name)
        for name, colour in zip(names, cycle(_COLOURS), strict=False)
    ]
    for marker, label in (
        (_MEASURED, "α̂; measured gain"),
        (_RATE, "accepted ÷ drafted"),
        (_PREDICTED, "predicted gain"),
    ):
        fill = "#606060" if marker == _MEASURED else "none"
        style: dict[str, Any] = {
            "color": "#606060",
            "marker": marker,
            "linestyle": "",
            "markerfacecolor": fill,
        }
        handles.append(Line2D([], [], label=label, **style))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    save_picture(figure, path)


def _draw(
    left: Any, right: Any, height: float, finding: Finding, arm: ArmFinding, colour: str
) -> None:
    _mark(left, finding.alpha, height, colour, _MEASURED)
    if arm.rate is not None:
        left.plot(arm.rate.middle, height, _RATE, color=colour, markersize=5)
    _mark(right, arm.gain, height, colour, _MEASURED)
    if arm.predicted is not None:
        right.plot(arm.predicted.middle, height, _PREDICTED, color=colour, mfc="none", markersize=6)


def _mark(axes: Any, value: Ratio | None, height: float, colour: str, marker: str) -> None:
    if value is not None:
        axes.plot([value.low, value.high], [height] * 2, color=colour, linewidth=1.2)
        axes.plot(value.middle, height, marker, color=colour, markersize=5)
