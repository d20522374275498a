"""The figures, tables and picture of `specdec bench users`."""

from __future__ import annotations

import random
import statistics
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from loadtest.bench.pictures import save_picture
from loadtest.bench.ratios import Ratio
from loadtest.bench.reporting import markdown_table, shown
from loadtest.measures import Distribution
from loadtest.summary import Summary

LATENCIES = {
    "ttft": "time to first token",
    "itl": "inter-token latency",
    "icl": "inter-chunk latency",
    "e2e": "end to end",
}
NUM_RESAMPLES = 2000
COLOURS = {"off": "#7f7f7f", "on": "#1f4e79"}


@dataclass(frozen=True, slots=True)
class Run:
    """One load test of the sweep."""

    protocol: str
    users: int
    arm: str
    pair: int
    summary: Summary


@dataclass(frozen=True, slots=True)
class Gain:
    """On ÷ off at one number of users: medians over the pairs of runs."""

    protocol: str
    users: int
    num_pairs: int
    tokens_per_s: Ratio
    ttft_p50: float | None
    """Ratio of the median times to the first token."""


def table_of(runs: list[Run]) -> str:
    """Show rate, latencies and acceptance of each run."""
    header = ["protocol, users, arm", "answers", "tokens/s"]
    header += [f"{name.upper()} p50/p95/p99, ms" for name in LATENCIES]
    header.append("accepted/drafted")
    rows = []
    for run in runs:
        summary = run.summary
        rate = summary.acceptance_rate
        rows.append(
            [
                f"{run.protocol}, {run.users}, {run.arm}",
                f"{summary.num_ok}/{summary.num_requests}",
                f"{summary.tokens_per_s or 0:.1f}",
                *(_quantiles(getattr(summary, name)) for name in LATENCIES),
                "–" if rate is None else f"{rate:.3f}",
            ]
        )
    return markdown_table(header, rows)


def median_runs(runs: list[Run]) -> list[Run]:
    """Return the run of each arm with the median rate."""
    groups: dict[tuple[str, int, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.protocol, run.users, run.arm), []).append(run)
    ordered = (sorted(each, key=_tokens_per_s) for each in groups.values())
    return [each[len(each) // 2] for each in ordered]


def _tokens_per_s(run: Run) -> float:
    return run.summary.tokens_per_s or 0.0


def without_categories(run: Run) -> dict[str, Any]:
    """Return a run's figures without those of each category of prompts."""
    return asdict(replace(run, summary=replace(run.summary, categories={})))


def gains(runs: list[Run]) -> list[Gain]:
    """Compare on with off pair by pair, with a 95 % interval of the median by resampling."""
    groups: dict[tuple[str, int], dict[int, dict[str, Run]]] = {}
    for run in runs:
        pairs = groups.setdefault((run.protocol, run.users), {})
        pairs.setdefault(run.pair, {})[run.arm] = run
    found = []
    for (protocol, users), pairs in groups.items():
        ratios = [_tokens_per_s(p["on"]) / _tokens_per_s(p["off"]) for p in pairs.values()]
        order = random.Random(0)
        drawn = sorted(
            statistics.median(order.choices(ratios, k=len(ratios))) for _ in range(NUM_RESAMPLES)
        )
        low, high = drawn[int(0.025 * NUM_RESAMPLES)], drawn[int(0.975 * NUM_RESAMPLES)]
        firsts = [
            p["on"].summary.ttft.p50_s / p["off"].summary.ttft.p50_s
            for p in pairs.values()
            if p["on"].summary.ttft and p["off"].summary.ttft
        ]
        rate = Ratio(statistics.median(ratios), low, high)
        ttft = statistics.median(firsts) if firsts else None
        found.append(Gain(protocol, users, len(ratios), rate, ttft))
    return found


def gains_table(found: list[Gain]) -> str:
    """Show a row for each protocol and number of users."""
    rows = [
        [
            each.protocol,
            str(each.users),
            str(each.num_pairs),
            f"{each.tokens_per_s.middle:.2f}",
            f"{each.tokens_per_s.low:.2f}–{each.tokens_per_s.high:.2f}",
            shown(each.ttft_p50, 2),
        ]
        for each in found
    ]
    header = ["on ÷ off", "users", "pairs", "tokens/s", "95 % interval", "median TTFT"]
    return markdown_table(header, rows)


def _quantiles(values: Distribution | None) -> str:
    if values is None:
        return "–"
    return " / ".join(f"{v * 1000:.0f}" for v in (values.p50_s, values.p95_s, values.p99_s))


def plot(runs: list[Run], path: Path) -> None:
    """Draw throughput and each latency's p50 (line) and p95 (dashes) over the users."""
    protocols = list(dict.fromkeys(run.protocol for run in runs))
    figure = Figure(figsize=(13, 4.2 * len(protocols)), layout="constrained")
    grid = figure.subplots(len(protocols), 5, squeeze=False)
    for row, protocol in zip(grid, protocols, strict=True):
        row[0].set_ylabel(protocol)
        for axes, name in zip(row, ("tokens/s", *LATENCIES), strict=True):
            axes.set_title(LATENCIES.get(name, name) + (" (ms)" if name in LATENCIES else ""))
            axes.set_xlabel("users")
            axes.set_xscale("log", base=2)
            users = sorted({run.users for run in runs})
            axes.set_xticks(users, [str(each) for each in users])
            axes.grid(alpha=0.3)
            for arm, colour in COLOURS.items():
                own = [run for run in runs if run.protocol == protocol and run.arm == arm]
                _draw(axes, own, name, arm, colour)
            axes.set_ylim(bottom=0)
    grid[0][0].legend(frameon=False)
    save_picture(figure, path, dpi=110)


def _draw(axes: Any, runs: list[Run], name: str, arm: str, colour: str) -> None:
    users = [run.users for run in runs]
    if name == "tokens/s":
        axes.plot(users, [run.summary.tokens_per_s for run in runs], "o-", color=colour, label=arm)
        return
    measured = [(run.users, getattr(run.summary, name)) for run in runs]
    known = [(count, values) for count, values in measured if values is not None]
    for field, style in (("p50_s", "o-"), ("p95_s", "o--")):
        values_ms = [getattr(values, field) * 1000 for _, values in known]
        axes.plot([count for count, _ in known], values_ms, style, color=colour, markersize=4)
