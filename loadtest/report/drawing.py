"""The style of the report's pictures, and the few shapes that they consist of."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import matplotlib as mpl
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from specdec.loadtest.report.figures import Latency

COLOURS = ("#1f4e79", "#e08e0b", "#4f8f3a", "#c0504d", "#8064a2", "#2aa1a8", "#7f6a4f", "#d46fa8")
MAX_LABEL = 24
MAX_BARS = 12
_GREY = "#8a8a8a"
_STYLE = {
    "font.size": 10,
    "axes.edgecolor": _GREY,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "grid.alpha": 0.25,
    "svg.hashsalt": "specdec",
    "xtick.color": "#404040",
    "ytick.color": "#404040",
}


def figure(num_columns: int, height: float) -> tuple[Figure, list[Any]]:
    """Return an empty figure and its axes, side by side; `height` is in inches."""
    with mpl.rc_context(_STYLE):
        whole = Figure(figsize=(11, height), layout="constrained")
        return whole, list(whole.subplots(1, num_columns, squeeze=False)[0])


def lines(
    axes: Any, times_s: Sequence[float], courses: Mapping[str, Sequence[float]], **options: Any
) -> None:
    """Draw curves over time, the highest ones if there are more than colours.

    `times_s` has at least one time, in seconds since the epoch. `courses` has one value for each
    time, NaN if there is none. `options` go to Matplotlib's `plot`.
    """
    times = [datetime.fromtimestamp(time_s).astimezone() for time_s in times_s]
    peaks = {
        name: max((value for value in values if not math.isnan(value)), default=None)
        for name, values in courses.items()
    }
    known = [name for name, peak in peaks.items() if peak is not None]
    highest = sorted(known, key=lambda name: -(peaks[name] or 0.0))[: len(COLOURS)]
    drawn = [name for name in known if name in highest]
    for name, colour in zip(drawn, COLOURS, strict=False):
        label = shortened(name)
        axes.plot(times, courses[name], color=colour, linewidth=1.8, label=label, **options)
    if len(drawn) < len(known):
        axes.plot([], [], color="none", label=f"and {len(known) - len(drawn)} more")
    locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(locator, tz=times[0].tzinfo)  # type: ignore[no-untyped-call]
    )
    if axes.lines:
        axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def bars(axes: Any, names: Sequence[str], values: Sequence[float], form: str) -> None:
    """Draw horizontal bars with their values, formatted by `form`."""
    places = range(len(names))
    drawn = axes.barh(places, list(values), color=COLOURS[0], height=0.55)
    axes.set_yticks(places, [shortened(name) for name in names])
    axes.bar_label(drawn, [form.format(value) for value in values], padding=4)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(visible=False, axis="y")


def cumulative(axes: Any, found: Latency, label: str, colour: str) -> None:
    """Draw a histogram as the share of samples that took at most a given time."""
    p50_s, p95_s = (found.quantile_s(fraction) for fraction in (0.5, 0.95))
    pairs = [
        (bound_s, count / found.num_samples)
        for bound_s, count in zip(found.bounds_s, found.counts, strict=True)
        if not math.isinf(bound_s)
    ]
    axes.plot(
        *zip(*pairs, strict=True),
        color=colour,
        linewidth=1.8,
        label=f"{label}: p50 {seconds(p50_s)}, p95 {seconds(p95_s)}",
    )


def svg(whole: Figure) -> str:
    """Return the finished figure as SVG."""
    out = io.StringIO()
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # Clients choose task labels; a character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        whole.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def shortened(name: str) -> str:
    """Return a client's label, cut to MAX_LABEL characters to leave room for the picture."""
    short = name if len(name) <= MAX_LABEL else name[: MAX_LABEL - 1] + "…"
    return short.replace("$", r"\$")  # Between two dollar signs Matplotlib would read a formula.


def seconds(value: float | None) -> str:
    """Return a time in s or ms, or a dash for None."""
    if value is None:
        return "–"
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
