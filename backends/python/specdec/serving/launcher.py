"""`specdec serve`: run tritonserver with a model repository; TritonServer is the same as an object.

Inside NVIDIA's container the tritonserver on PATH is used, elsewhere the one that the package
nvidia-pytriton carries. Everything listens on loopback unless --address says otherwise.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from specdec.serving.installation import LaunchError
from specdec.serving.server_command import (
    PORT_VARIABLES,
    ServeSettings,
    check_model_repository,
    with_free_ports,
)
from specdec.serving.supervisor import serve
from specdec.serving.triton_server import TritonServer

__all__ = ["LaunchError", "ServeSettings", "TritonServer", "main"]

DEFAULT_PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}


def port_from_environment(kind: str, default: int) -> int:
    """Return the port that HTTP_PORT, GRPC_PORT or METRICS_PORT names, else `default`.

    Raises LaunchError if the variable is not a number.
    """
    text = os.environ.get(PORT_VARIABLES[kind], "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError as error:
        raise LaunchError(f"{PORT_VARIABLES[kind]} must be a port; given: {text!r}") from error


def main(argv: list[str]) -> int:
    """Serve until interrupted; return tritonserver's exit status, 1 if it cannot be started."""
    own, separator, extra = _split(argv)
    arguments = _parser().parse_args(own)
    try:
        settings = with_free_ports(_settings(arguments, tuple(extra) if separator else ()))
        check_model_repository(settings)
        host = settings.reachable_host
        print(
            f"specdec serve: {settings.model_repository} on http://{host}:{settings.http_port}, "
            f"gRPC {host}:{settings.grpc_port}, "
            f"metrics http://{host}:{settings.metrics_port}/metrics",
            flush=True,
        )
        return serve(settings, parent_pid=arguments.stop_with_parent, pid_file=arguments.pid_file)
    except LaunchError as error:
        print(f"specdec serve: {error}", file=sys.stderr)
        return 1


def _split(argv: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in argv:
        return argv, False, []
    position = argv.index("--")
    return argv[:position], True, argv[position + 1 :]


def _settings(arguments: argparse.Namespace, extra_args: tuple[str, ...]) -> ServeSettings:
    ports = {
        f"{kind}_port": given
        if (given := getattr(arguments, f"{kind}_port")) is not None
        else port_from_environment(kind, default)
        for kind, default in DEFAULT_PORTS.items()
    }
    return ServeSettings(
        model_repository=arguments.model_repository.resolve(),
        address=arguments.address,
        inflight_limit=arguments.inflight_limit,
        exit_timeout_s=arguments.exit_timeout_s,
        log_verbose=int(arguments.log_verbose),
        trace_url=arguments.trace_url,
        trace_every=arguments.trace_every,
        extra_args=extra_args,
        **ports,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec serve",
        description="Run tritonserver with a model repository until interrupted.",
        epilog="Arguments after -- go to tritonserver as they are.",
    )
    parser.add_argument(
        "--model-repository", type=Path, default=Path("model_repository"), metavar="PATH"
    )
    for kind, default in DEFAULT_PORTS.items():
        parser.add_argument(
            f"--{kind}-port",
            type=int,
            metavar="PORT",
            help=f"default: ${PORT_VARIABLES[kind]}, else {default}; 0 takes a free one",
        )
    parser.add_argument(
        "--address", default="127.0.0.1", help="default: %(default)s; 0.0.0.0 serves the network"
    )
    parser.add_argument(
        "--inflight-limit",
        type=int,
        default=64,
        metavar="N",
        help="the orchestrator's in-flight limit; the BLS pool gets 2N threads (default: 64)",
    )
    parser.add_argument(
        "--exit-timeout-s",
        type=int,
        default=30,
        metavar="S",
        help="seconds that requests in flight may take after a stop (default: 30)",
    )
    parser.add_argument("--log-verbose", action="store_true", help="tritonserver's verbose log")
    parser.add_argument(
        "--trace-url",
        default="",
        metavar="URL",
        help="send OpenTelemetry spans of requests and engine calls there, for example "
        "http://collector:4318/v1/traces (default: no tracing)",
    )
    parser.add_argument(
        "--trace-every",
        type=int,
        default=100,
        metavar="N",
        help="trace one request in N (default: 100)",
    )
    parser.add_argument(
        "--pid-file", type=Path, metavar="FILE", help="write tritonserver's process id there"
    )
    parser.add_argument(
        "--stop-with-parent",
        type=int,
        metavar="PID",
        help="stop when PID is no longer this command's parent, for programs that start it",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
