"""The latency picture of a load test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from specdec.loadtest.load.measures import quantile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TITLES = {
    "ttft": "time to first token",
    "itl": "inter-token latency (mean of an answer)",
    "icl": "inter-chunk latency",
    "e2e": "end to end",
}
_LINE = "#1f4e79"
_MARK = "#c0504d"


def plot_latencies(latencies_s: Mapping[str, Sequence[float]], title: str, path: Path) -> None:
    """Draw the cumulative distribution of each metric with p50, p95 and p99 marked.

    `latencies_s` has seconds by metric: `ttft`, `itl`, `icl` and `e2e`.
    """
    figure = Figure(figsize=(11, 7), layout="constrained")
    figure.suptitle(title, fontsize=12)
    for axes, (name, heading) in zip(figure.subplots(2, 2).flat, _TITLES.items(), strict=True):
        _draw(axes, [value * 1000 for value in latencies_s[name]], heading)
    figure.savefig(path, dpi=120)


def _draw(axes: Any, values_ms: Sequence[float], heading: str) -> None:
    axes.set_xlabel("ms")
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if not values_ms:
        axes.set_title(f"{heading}: nothing measured", fontsize=10)
        return
    p50, p95, p99 = (quantile(values_ms, fraction) for fraction in (0.50, 0.95, 0.99))
    # The figures are in the title because a curve could hide them anywhere else.
    figures = f"p50 {p50:,.1f} ms   p95 {p95:,.1f} ms   p99 {p99:,.1f} ms   n = {len(values_ms):,}"
    axes.set_title(f"{heading}\n{figures}", fontsize=10)
    axes.ecdf(values_ms, color=_LINE, linewidth=1.8)
    for fraction, value in ((0.50, p50), (0.95, p95), (0.99, p99)):
        axes.plot(value, fraction, "o", color=_MARK, markersize=5)
    # On a linear axis a long tail would press everything else against the left edge.
    if min(values_ms) > 0 and max(values_ms) > 20 * p50:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.set_xlim(left=0)
