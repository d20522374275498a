"""`specdec bench users`: on and off under load, over gRPC and generate_stream."""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from loadtest.bench.reporting import RESULTS, command_line, conditions, write_result
from loadtest.bench.users_report import (
    Run,
    gains,
    gains_table,
    median_runs,
    plot,
    table_of,
    without_categories,
)
from loadtest.run import run_load
from loadtest.settings import SHIPPED_PROMPTS, LoadSettings
from loadtest.summary import Summary
from specdec.serving.launcher import TritonServer

ARMS: dict[str, dict[str, Any]] = {"off": {"num_draft_tokens": 0}, "on": {}}
PROTOCOLS: tuple[Literal["grpc", "http"], ...] = ("grpc", "http")


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
    middle, ratios = median_runs(runs), gains(runs)
    facts = {
        "conditions": conditions(command_line("users", argv)),
        "duration_s": arguments.duration,
        "max_tokens": arguments.max_tokens,
        "median_runs": [without_categories(run) for run in middle],
        "gains": ratios,
        "outcomes_verified": {name: summary.outcomes for name, summary in checked.items()},
    }
    table = table_of(middle) + "\n\n" + gains_table(ratios) + "\n\n"
    table += "\n".join(_verdict(name, checked[name]) for name in checked)
    write_result(arguments.name, arguments.out, facts, table, raw=runs)
    plot(middle, arguments.out / f"{arguments.name}.png")
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
