"""`specdec load`: run a load test, write its report, and check its limits."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import fields
from pathlib import Path

from specdec.clients import SpecdecError
from specdec.clients.options import add_request_arguments
from specdec.loadtest.load.limits import Limits, find_violations
from specdec.loadtest.load.report import write_report
from specdec.loadtest.load.run import run_load
from specdec.loadtest.load.settings import SHIPPED_PROMPTS, LoadSettings

_INPUTS = (
    "max_tokens",
    "num_draft_tokens",
    "drafter",
    "verification",
    "temperature",
    "deadline_ms",
)
"""Inputs of every request that options set."""
_LIMITS = {
    "max_p95_ttft_ms": "95th percentile of the time to the first token, ms, at most",
    "max_p95_itl_ms": "95th percentile of the time between tokens, ms, at most",
    "max_p95_icl_ms": "95th percentile of the time between responses, ms, at most",
    "max_p95_e2e_ms": "95th percentile of the time of a whole answer, ms, at most",
    "min_tokens_per_s": "tokens per second of all requests together, at least",
    "min_acceptance": "accepted ÷ drafted tokens, at least",
    "max_fail_ratio": "failed ÷ all requests, at most",
}
"""Meaning of each limit, by its field of `Limits`."""


def main(argv: list[str]) -> int:
    """Run the command and return its exit status.

    The status is 1 if a limit was broken, nothing was answered, or the test did not run.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        settings = _settings(args)
    except ValueError as error:
        parser.error(str(error))
    limits = Limits(**{item.name: getattr(args, item.name) for item in fields(Limits)})
    try:
        samples, summary = run_load(settings)
    except (OSError, RuntimeError, SpecdecError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    violations = find_violations(summary, limits)
    print(write_report(settings, samples, summary, violations))
    print(f"all results are in {settings.out}", file=sys.stderr)
    for violation in violations:
        print(f"BROKEN {violation}", file=sys.stderr)
    return 1 if violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec load",
        description="Put the model under load with Locust users and check the result. Leaves raw "
        "samples (requests.csv, chunks.csv), summary.json, summary.md, latency.png and Locust's "
        "own CSV and HTML in --out. Exit code 1 when a limit is broken or nothing was answered.",
    )
    server = parser.add_argument_group("server")
    server.add_argument(
        "--protocol", choices=("grpc", "http"), default="grpc", help="default: %(default)s"
    )
    server.add_argument(
        "--url",
        help="host:port for gRPC (default: 127.0.0.1, GRPC_PORT or 8001), http://host:port for "
        "HTTP (default: 127.0.0.1, HTTP_PORT or 8000)",
    )
    server.add_argument("--model", default="specdec", help="model name (default: %(default)s)")
    _add_load_arguments(parser.add_argument_group("load"))
    _add_prompt_arguments(parser.add_argument_group("prompts"))
    add_request_arguments(parser, _INPUTS)
    limits = parser.add_argument_group("limits, checked on the raw samples")
    for item in fields(Limits):
        default = "none" if item.default is None else item.default
        text = f"{_LIMITS[item.name]} (default: {default})"
        limits.add_argument(
            _flag(item.name), type=float, default=item.default, metavar="X", help=text
        )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/scratch/load"),
        help="folder of the result (default: %(default)s)",
    )
    return parser


def _add_load_arguments(load: argparse._ArgumentGroup) -> None:
    load.add_argument(
        "--arrivals",
        choices=("closed", "poisson"),
        default="closed",
        help="closed: users who wait for each answer; poisson: starts that wait for nothing",
    )
    load.add_argument("--users", type=int, default=1, help="closed: number of users (default: 1)")
    load.add_argument(
        "--spawn-rate", type=float, help="users to start per second (default: all at once)"
    )
    load.add_argument("--rate", type=float, help="poisson: requests per second, on average")
    load.add_argument("--duration", type=float, metavar="S", help="start requests for S seconds")
    load.add_argument("--requests", type=int, metavar="N", help="start N requests")
    load.add_argument(
        "--warmup", type=float, default=0.0, metavar="S", help="leave the first S seconds out"
    )
    load.add_argument(
        "--grace",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds after --duration in which requests in flight may end (default: %(default)s)",
    )
    load.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="seconds after which a request counts as failed (default: %(default)s)",
    )
    load.add_argument(
        "--seed", type=int, default=1, help="seed of the prompts' order and the arrival times"
    )


def _add_prompt_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--prompts",
        type=Path,
        default=SHIPPED_PROMPTS,
        help="JSONL: question_id, category, turns (default: ours)",
    )
    group.add_argument("--raw", action="store_true", help="send as text_input, not as a message")
    group.add_argument(
        "--salt", action="store_true", help="begin every prompt differently, to defeat caches"
    )
    group.add_argument("--tasks", action="store_true", help="send the category as the task")
    group.add_argument(
        "--verify",
        action="store_true",
        help="first get each answer without speculation, then compare every answer's tokens",
    )


def _settings(args: argparse.Namespace) -> LoadSettings:
    grpc_url = f"127.0.0.1:{os.environ.get('GRPC_PORT', '8001')}"
    http_url = f"http://127.0.0.1:{os.environ.get('HTTP_PORT', '8000')}"
    given = {name: getattr(args, name) for name in _INPUTS}
    return LoadSettings(
        out=args.out,
        protocol=args.protocol,
        url=args.url or (grpc_url if args.protocol == "grpc" else http_url),
        model=args.model,
        users=args.users,
        spawn_rate_per_s=args.spawn_rate,
        duration_s=args.duration,
        num_requests=args.requests,
        warmup_s=args.warmup,
        timeout_s=args.timeout,
        grace_s=args.grace,
        arrivals=args.arrivals,
        rate_per_s=args.rate,
        prompts=args.prompts,
        request={name: value for name, value in given.items() if value is not None},
        is_chat=not args.raw,
        is_salted=args.salt,
        has_tasks=args.tasks,
        is_verified=args.verify,
        seed=args.seed,
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
