"""The picture of `specdec bench peers`: bars by engine and drafter."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from loadtest.bench.pictures import save_picture
from loadtest.bench.ratios import rate
from loadtest.peers.catalogue import OURS, ArmName
from loadtest.peers.measuring import Measurement
from loadtest.peers.report import of

_COLOURS = {True: "#1f4e79", False: "#a6a6a6"}
_MARK = "#c0504d"


def plot_peers(
    found: Sequence[Measurement], arms: Sequence[ArmName], title: str, path: Path
) -> None:
    """Draw a panel for each number of streams, with a bar for each arm, the fastest on top."""
    streams = sorted({each.num_streams for each in found})
    counts = [len([arm for arm in arms if of(found, arm, each)]) for each in streams]
    figure = Figure(figsize=(5.2 * len(streams), 1.4 + 0.36 * max(counts)), layout="constrained")
    figure.suptitle(textwrap.fill(title, 64 * len(streams)), fontsize=11)
    for axes, num_streams in zip(
        figure.subplots(1, len(streams), squeeze=False)[0], streams, strict=True
    ):
        _draw(axes, found, arms, num_streams)
        # All panels have bars of the same thickness, whatever their number.
        top = len(axes.patches) - 0.4
        axes.set_ylim(top - max(counts) - 0.2, top)
    handles = [Patch(color=_COLOURS[True], label="specdec, through tritonserver")]
    handles.append(Patch(color=_COLOURS[False], label="peers, in their own process"))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    save_picture(figure, path)


def _draw(
    axes: Any, found: Sequence[Measurement], arms: Sequence[ArmName], num_streams: int
) -> None:
    measured = {arm: of(found, arm, num_streams) for arm in arms}
    rates = {arm: _rate(own, num_streams) for arm, own in measured.items() if own}
    ordered = sorted(rates, key=lambda arm: rates[arm])
    places = range(len(ordered))
    axes.barh(
        places,
        [rates[arm] for arm in ordered],
        color=[_COLOURS[arm.peer == OURS] for arm in ordered],
        height=0.7,
    )
    furthest = 0.0
    for place, arm in zip(places, ordered, strict=True):
        single = sorted(rate([each.timed]) for each in measured[arm])
        low, high = _spread(single, num_streams)
        axes.plot([low, high], [place, place], color=_MARK, linewidth=1.4, marker="|")
        end = max(high, rates[arm])
        axes.annotate(
            f"{rates[arm]:.0f}",
            (end, place),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
        furthest = max(furthest, end)
    axes.set_yticks(list(places), [arm.label for arm in ordered], fontsize=8)
    axes.set_xlim(0, furthest * 1.14)
    axes.set_xlabel("tokens/s")
    kind = "one stream" if num_streams == 1 else f"{num_streams} streams"
    line = "middle half of the prompts" if num_streams == 1 else "range of the repetitions"
    axes.set_title(f"{kind} (line: {line})", fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _rate(measured: Sequence[Measurement], num_streams: int) -> float:
    """Return tokens per second as in the tables.

    With one stream it is the rate over all prompts, else the median of the repetitions.
    """
    if num_streams == 1:
        return rate(each.timed for each in measured)
    return statistics.median(rate([each.timed]) for each in measured)


def _spread(values: Sequence[float], num_streams: int) -> tuple[float, float]:
    if num_streams > 1 or len(values) < 2:
        return min(values), max(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
