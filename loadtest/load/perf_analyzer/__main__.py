"""`python -m specdec.loadtest.load.perf_analyzer`: compare our load test with Triton's own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from bisect import bisect_left
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from specdec.clients.options import add_request_arguments
from specdec.loadtest.arguments import positive
from specdec.loadtest.load.perf_analyzer.tool import install, run_tool
from specdec.loadtest.load.run import run_load
from specdec.loadtest.load.samples import Samples
from specdec.loadtest.load.settings import SHIPPED_PROMPTS, LoadSettings
from specdec.loadtest.load.summary import Summary, summarize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_INPUTS = ("max_tokens", "num_draft_tokens", "drafter")
_FOLDER = Path(".cache/perf_analyzer")


def main(argv: list[str]) -> int:
    """Run the command and return its exit status.

    The status is 1 if the tools disagree by more than the tolerance, or one of them failed.
    """
    args = _parser().parse_args(argv)
    tool = args.folder / "perf_analyzer"
    try:
        if not tool.exists():
            install(args.folder)
        settings = _settings(args)
        # Not measured: afterwards every prompt is cached, for both tools alike.
        run_load(replace(settings, out=args.out / "warm-up"))
        pairs = [_measure_both(tool, settings, number) for number in range(args.repeats)]
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    rows = compare([ours for ours, _ in pairs], [theirs for _, theirs in pairs])
    print(describe(rows, args.tolerance))
    facts = {name: {"ours": ours, "theirs": theirs} for name, ours, theirs in rows}
    (args.out / "comparison.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return 0 if all(_agree(ours, theirs, args.tolerance) for _, ours, theirs in rows) else 1


def compare(
    ours: Sequence[Summary], theirs: Sequence[Summary]
) -> list[tuple[str, float | None, float | None]]:
    """Return (figure, ours, theirs) for each figure, as medians over the runs; times are in ms."""
    return [
        (name, _median(map(figures, ours), name), _median(map(figures, theirs), name))
        for name in figures(ours[0])
    ]


def figures(summary: Summary) -> dict[str, float | None]:
    """Return the figures of one run that are compared, by name; times are in ms."""
    latencies = {"TTFT": summary.ttft, "ITL": summary.itl, "e2e": summary.e2e}
    return {
        "tokens/s": summary.tokens_per_s,
        **{
            f"{name} {label} (ms)": None if values is None else getattr(values, field) * 1000
            for name, values in latencies.items()
            for label, field in (("mean", "mean_s"), ("p50", "p50_s"))
        },
        "answers in full (%)": 100 * summary.num_ok / summary.num_requests,
    }


def describe(rows: Sequence[tuple[str, float | None, float | None]], tolerance: float) -> str:
    """Return the comparison as a Markdown table; `tolerance` is a share of the tool's figure."""
    lines = ["| | ours | perf_analyzer | difference | |", "|---|---|---|---|---|"]
    for name, ours, theirs in rows:
        verdict = "" if _agree(ours, theirs, tolerance) else f"BROKEN (limit {tolerance:.0%})"
        if ours is None or theirs is None:
            lines.append(f"| {name} | {ours} | {theirs} | – | {verdict} |")
        else:
            difference = f"{(ours - theirs) / theirs:+.1%}" if theirs else "–"
            lines.append(f"| {name} | {ours:.1f} | {theirs:.1f} | {difference} | {verdict} |")
    return "\n".join(lines)


def _agree(ours: float | None, theirs: float | None, tolerance: float) -> bool:
    if not ours or not theirs:
        return False
    return abs(ours - theirs) / theirs <= tolerance


def _median(runs: Iterable[Mapping[str, float | None]], name: str) -> float | None:
    present = [value for run in runs if (value := run[name]) is not None]
    return median(present) if present else None


def while_all_are_busy(samples: Samples, users: int) -> Samples:
    """Keep the requests that ended while every user still had a request in flight.

    perf_analyzer assigns its requests to threads beforehand, while ours go to whichever user is
    free. The tools therefore end differently, and a server with fewer users left answers faster.
    """
    starts_s = sorted(request.start_s for request in samples.requests)
    ends_s = sorted(request.start_s + request.e2e_s for request in samples.requests)
    busy_until_s = max(
        (
            end_s
            for number, end_s in enumerate(ends_s)
            if bisect_left(starts_s, end_s) - number >= users
        ),
        default=0.0,
    )
    kept = [each for each in samples.requests if each.start_s + each.e2e_s <= busy_until_s]
    ids = {request.request_id for request in kept}
    chunks = [chunk for chunk in samples.chunks if chunk.request_id in ids]
    return Samples(tuple(kept), tuple(chunks))


def _measure_both(tool: Path, settings: LoadSettings, number: int) -> tuple[Summary, Summary]:
    """Measure with both tools; every other pair runs in the opposite order."""
    ours, theirs = settings.out / f"{number}-ours", settings.out / f"{number}-theirs"
    theirs.mkdir(parents=True, exist_ok=True)
    if number % 2 == 0:
        own, _ = run_load(replace(settings, out=ours))
        foreign = run_tool(tool, replace(settings, out=theirs))
    else:
        foreign = run_tool(tool, replace(settings, out=theirs))
        own, _ = run_load(replace(settings, out=ours))
    return _busy_summary(own, settings.users), _busy_summary(foreign, settings.users)


def _busy_summary(samples: Samples, users: int) -> Summary:
    busy = while_all_are_busy(samples, users)
    return summarize(busy, warmup_s=0.0, duration_s=None)


def _settings(args: argparse.Namespace) -> LoadSettings:
    return LoadSettings(
        out=args.out,
        url=args.url,
        model=args.model,
        users=args.users,
        num_requests=args.requests,
        timeout_s=args.timeout,
        prompts=args.prompts,
        request={name: getattr(args, name) for name in _INPUTS if getattr(args, name) is not None},
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m specdec.loadtest.load.perf_analyzer",
        description="Measure one gRPC streaming setting with our load test and with Triton's "
        "perf_analyzer, in alternation and with warm caches, and compare. Fetches the tool into "
        "--folder when it is not there (PyPI, and Debian for libb64).",
    )
    parser.add_argument(
        "--folder", type=Path, default=_FOLDER, help="folder of the tool (default: %(default)s)"
    )
    url = f"127.0.0.1:{os.environ.get('GRPC_PORT', '8001')}"
    parser.add_argument("--url", default=url, help="gRPC host:port (default: %(default)s)")
    parser.add_argument("--model", default="specdec", help="model name (default: %(default)s)")
    parser.add_argument(
        "--users", type=positive, default=4, help="requests in flight (default: %(default)s)"
    )
    parser.add_argument(
        "--requests", type=positive, default=54, help="requests of a run (default: %(default)s)"
    )
    parser.add_argument(
        "--repeats", type=positive, default=3, help="pairs of runs (default: %(default)s)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="time limit of a request (default: 60)",
    )
    parser.add_argument(
        "--prompts", type=Path, default=SHIPPED_PROMPTS, help="JSONL file (default: ours)"
    )
    add_request_arguments(parser, _INPUTS)
    parser.set_defaults(max_tokens=64)
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.05,
        help="largest difference, as a share of the tool's figure (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/scratch/perf_analyzer"),
        help="folder of the result (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
