"""`specdec report`: write the page to a file."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from specdec.loadtest.report.page import render
from specdec.loadtest.report.sources import LiveServer, Prometheus, SourceError


def main(argv: list[str]) -> int:
    """Run the command; return 1 if there is nothing to report, else 0."""
    parser = _parser()
    args = parser.parse_args(argv)
    for name in ("watch", "every", "hours"):
        value = getattr(args, name)
        if not math.isfinite(value) or value < 0 or (value == 0 and name != "watch"):
            parser.error(f"--{name} must be a positive number; given {value:g}")
    if args.prometheus and args.watch:
        parser.error("--watch cannot be combined with --prometheus; use --hours")
    try:
        if args.prometheus:
            source = Prometheus(args.prometheus, args.hours, time.time(), args.matching)
            history = source.read()
        else:
            server = LiveServer(args.metrics, args.watch, args.every)
            history = server.read(_progress() if args.watch else lambda _: None)
    except SourceError as error:
        print(f"specdec report: {error}", file=sys.stderr)
        return 1
    page = render(history, str(args.prometheus or args.metrics), time.time())
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(page, "utf-8")
    except OSError as error:
        print(f"specdec report: {error}", file=sys.stderr)
        return 1
    print(args.out)
    return 0


def _progress() -> Callable[[float], None]:
    def say(left_s: float) -> None:
        print(f"\rwatching, {left_s:.0f} s left ", end="", file=sys.stderr, flush=True)

    return say if sys.stderr.isatty() else lambda _: None


def _parser() -> argparse.ArgumentParser:
    port = os.environ.get("METRICS_PORT") or "8002"
    parser = argparse.ArgumentParser(
        prog="specdec report",
        description="One HTML page on what speculation does: acceptance, gain, and where the time "
        "goes. From a server's own counts since its start, from watching it for a while "
        "(--watch), or from a Prometheus.",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--metrics",
        default=f"http://127.0.0.1:{port}/metrics",
        metavar="URL",
        help="metrics page of a server (default: %(default)s)",
    )
    source.add_argument("--prometheus", metavar="URL", help="for example http://localhost:9090")
    parser.add_argument(
        "--watch", type=float, default=0.0, metavar="S", help="watch the server for S seconds"
    )
    parser.add_argument(
        "--every",
        type=float,
        default=5.0,
        metavar="S",
        help="with --watch: read the page every S seconds (default: 5)",
    )
    parser.add_argument(
        "--hours",
        type=float,
        default=3.0,
        metavar="H",
        help="with --prometheus: the last H hours (default: 3)",
    )
    parser.add_argument(
        "--matching",
        default="",
        metavar="MATCHERS",
        help='with --prometheus: these series only, for example \'job="specdec",model="specdec"\'',
    )
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), help="file (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
