"""`specdec bench users`: on and off under load, over gRPC and generate_stream."""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure

from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.measures import Distribution
from loadtest.run import run_load
from loadtest.settings import SHIPPED_PROMPTS, LoadSettings
from loadtest.summary import Summary
from specdec.serving.launcher import TritonServer

ARMS: dict[str, dict[str, Any]] = {"off": {"num_draft_tokens": 0}, "on": {}}
PROTOCOLS: tuple[Literal["grpc", "http"], ...] = ("grpc", "http")
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


def main(argv: list[str]) -> int:
    """Run the sweep; 1 if a request failed or an answer was another prompt's."""
    arguments = _parser().parse_args(argv)
    runs: list[Run] = []
    with TritonServer(arguments.model_repository) as server:
        urls = {"grpc": server.grpc_url, "http": f"http://{server.http_url}"}
        base = LoadSettings(
            out=arguments.scratch,
            duration_s=arguments.duration,
            warmup_s=arguments.warmup,
            prompts=arguments.prompts,
            request={"max_tokens": arguments.max_tokens},
            is_salted=True,
        )
        cases = itertools.product(arguments.protocols, arguments.users)
        for protocol, users in cases:
            loaded = replace(base, protocol=protocol, url=urls[protocol], users=users)
            if arguments.learning:
                out = arguments.scratch / f"{protocol}-{users}-learning"
                run_load(replace(loaded, out=out, duration_s=arguments.learning))
            for pair in range(arguments.pairs):
                # The arms take turns in going first: the machine's speed drifts.
                for arm in list(ARMS) if pair % 2 == 0 else list(reversed(ARMS)):
                    settings = replace(
                        loaded,
                        out=arguments.scratch / f"{protocol}-{users}-{arm}",
                        request=base.request | ARMS[arm],
                    )
                    _, summary = run_load(settings)
                    runs.append(Run(protocol, users, arm, pair, summary))
                    print(f"{protocol}, {users} users, {arm}, {pair}: done", file=sys.stderr)
        checked = _verify(base, urls, arguments)
    facts = {
        "conditions": conditions(command_line("users", argv)),
        "duration_s": arguments.duration,
        "max_tokens": arguments.max_tokens,
        "runs": [asdict(run) for run in runs],
        "verified": {protocol: asdict(summary) for protocol, summary in checked.items()},
    }
    table = _table(_middle(runs)) + "\n\n" + _ratios(runs) + "\n\n"
    table += "\n".join(_verdict(name, checked[name]) for name in checked)
    write_result(arguments.name, arguments.out, facts, table)
    _plot(_middle(runs), arguments.out / f"{arguments.name}.png")
    failed = any(s.num_ok < s.num_requests for s in [r.summary for r in runs] + [*checked.values()])
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec bench users",
        description="Closed-loop users on salted prompts (no cached prefix helps), speculation "
        "on and off in turn. Then once more at the most users with every answer's tokens "
        "compared with the target's.",
    )
    parser.add_argument("--users", type=int, nargs="+", default=[1, 4, 16, 48])
    parser.add_argument(
        "--pairs", type=int, default=1, help="runs of each arm; tables have the middle one"
    )
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    parser.add_argument("--duration", type=float, default=25.0, help="seconds of each run")
    parser.add_argument("--warmup", type=float, default=5.0, help="seconds of it left out")
    parser.add_argument(
        "--learning",
        type=float,
        default=20.0,
        help="seconds with speculation on before the first run of a number of users, left out: "
        "the controller learns a new load",
    )
    parser.add_argument("--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--scratch", type=Path, default=Path("results/scratch/users"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="users", help="of the result files")
    return parser


def _verify(
    base: LoadSettings, urls: dict[str, str], arguments: argparse.Namespace
) -> dict[str, Summary]:
    """Speculation on at the most users, every answer compared with the target's own tokens."""
    checked: dict[str, Summary] = {}
    for protocol in arguments.protocols:
        settings = replace(
            base,
            out=arguments.scratch / f"{protocol}-verified",
            protocol=protocol,
            url=urls[protocol],
            users=max(arguments.users),
            is_salted=False,
            is_verified=True,
        )
        _, checked[protocol] = run_load(settings)
    return checked


def _verdict(protocol: str, summary: Summary) -> str:
    return (
        f"{protocol}, every answer compared with the target's: {summary.num_ok} of "
        f"{summary.num_requests} complete and equal ({summary.num_output_tokens} tokens)."
    )


def _table(runs: list[Run]) -> str:
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


def _middle(runs: list[Run]) -> list[Run]:
    """Of the runs of each arm the one with the median rate."""
    groups: dict[tuple[str, int, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.protocol, run.users, run.arm), []).append(run)
    ordered = (sorted(each, key=_tokens_per_s) for each in groups.values())
    return [each[len(each) // 2] for each in ordered]


def _tokens_per_s(run: Run) -> float:
    return run.summary.tokens_per_s or 0.0


def _ratios(runs: list[Run]) -> str:
    """On ÷ off of each pair: median, and the 95 % interval of the median by resampling."""
    found: dict[tuple[str, int], dict[int, dict[str, Run]]] = {}
    for run in runs:
        pairs = found.setdefault((run.protocol, run.users), {})
        pairs.setdefault(run.pair, {})[run.arm] = run
    rows = []
    for (protocol, users), pairs in found.items():
        ratios = [_tokens_per_s(p["on"]) / _tokens_per_s(p["off"]) for p in pairs.values()]
        order = random.Random(0)
        drawn = sorted(
            statistics.median(order.choices(ratios, k=len(ratios))) for _ in range(NUM_RESAMPLES)
        )
        low, high = drawn[int(0.025 * NUM_RESAMPLES)], drawn[int(0.975 * NUM_RESAMPLES)]
        middle = f"{statistics.median(ratios):.2f}"
        firsts = [
            p["on"].summary.ttft.p50_s / p["off"].summary.ttft.p50_s
            for p in pairs.values()
            if p["on"].summary.ttft and p["off"].summary.ttft
        ]
        ttft = f"{statistics.median(firsts):.2f}" if firsts else "–"
        rows.append([protocol, str(users), str(len(ratios)), middle, f"{low:.2f}–{high:.2f}", ttft])
    header = ["on ÷ off", "users", "pairs", "tokens/s", "95 % interval", "median TTFT"]
    return markdown_table(header, rows)


def _quantiles(values: Distribution | None) -> str:
    if values is None:
        return "–"
    return " / ".join(f"{v * 1000:.0f}" for v in (values.p50_s, values.p95_s, values.p99_s))


def _plot(runs: list[Run], path: Path) -> None:
    """Throughput and each latency's p50 (line) and p95 (dashes) over the users."""
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
    figure.savefig(path, dpi=110)


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
