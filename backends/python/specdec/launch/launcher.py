"""`specdec serve`: run tritonserver with a model repository (from Python: triton_server.py).

The tritonserver on PATH is used, as in NVIDIA's container, else that of the package
nvidia-pytriton. All ports listen on loopback unless --address says otherwise.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

from specdec.folders import default_model_repository
from specdec.launch.admin_key import check_admin_key
from specdec.launch.installation import LaunchError
from specdec.launch.leftovers import remove_leftovers
from specdec.launch.server_command import (
    PORT_VARIABLES,
    ServeSettings,
    check_model_repository,
    with_free_ports,
)
from specdec.launch.supervisor import serve

DEFAULTS = ServeSettings(Path("model_repository"))
DEFAULT_PORTS = {kind: getattr(DEFAULTS, f"{kind}_port") for kind in PORT_VARIABLES}


def port_from_environment(kind: str, default: int) -> int:
    """Return the port in the environment variable for `kind`, or `default` if that is not set.

    The kinds are http, grpc, metrics, health and openai; their variables are HTTP_PORT and so on.
    Raises LaunchError if the variable is no number.
    """
    text = os.environ.get(PORT_VARIABLES[kind], "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError as error:
        raise LaunchError(f"{PORT_VARIABLES[kind]} must be a port; given {text!r}") from error


def main(argv: list[str]) -> int:
    """Serve until a signal and return the exit status.

    The status is 1 if the server cannot be started, else that of `supervisor.serve`.
    """
    own, separator, extra = _split(argv)
    arguments = _parser().parse_args(own)
    try:
        # Processes of a killed server may still hold the ports.
        for leftover in remove_leftovers():
            print(f"specdec serve: removed what a killed server left: {leftover}", file=sys.stderr)
        settings = with_free_ports(_settings(arguments, tuple(extra) if separator else ()))
        check_model_repository(settings)
        check_admin_key(
            settings.admin_key_file, settings.extra_args, is_explicit=settings.is_explicit
        )
        host = settings.url_host
        print(
            f"specdec serve: {settings.model_repository} on http://{host}:{settings.http_port}, "
            f"gRPC {host}:{settings.grpc_port}, "
            f"metrics http://{host}:{settings.metrics_port}/metrics, "
            f"health http://{host}:{settings.health_port}/health/ready",
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
    repository = arguments.model_repository or (
        arguments.launch.parent if arguments.launch else default_model_repository()
    )
    return ServeSettings(
        model_repository=repository.resolve(),
        launch_script=arguments.launch,
        address=arguments.address,
        inflight_limit=arguments.inflight_limit,
        drain_s=arguments.drain_s,
        hang_s=arguments.hang_s,
        log_verbose=int(arguments.log_verbose),
        trace_url=arguments.trace_url,
        trace_every=arguments.trace_every,
        admin_key_file=arguments.admin_key_file,
        has_openai=arguments.openai,
        gateway_args=tuple(shlex.split(arguments.gateway_args)),
        extra_args=extra_args,
        **ports,
    )


class _Renamed(argparse.Action):
    """Action that refuses the old name of --drain-s."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.error("--exit-timeout-s is called --drain-s now")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec serve",
        description="Run tritonserver with a model repository until interrupted; start it again "
        "when a process of it dies or hangs. Exit status: 0 after a stop, 70 after five deaths "
        "within ten minutes.",
        epilog="Arguments after -- go to tritonserver as they are.",
    )
    parser.add_argument(
        "--model-repository",
        type=Path,
        metavar="PATH",
        help="default: the folder of --launch, or model_repository if it exists, or the one that "
        "`specdec build pair` fills",
    )
    parser.add_argument(
        "--launch",
        type=Path,
        metavar="FILE",
        help="start tritonserver by this script (`specdec build render` writes launch.sh) "
        "with our addresses and the arguments after --",
    )
    for kind, default in DEFAULT_PORTS.items():
        parser.add_argument(
            f"--{kind}-port",
            type=int,
            metavar="PORT",
            help=f"default: ${PORT_VARIABLES[kind]}, else {default}; 0 takes a free one",
        )
    parser.add_argument(
        "--openai", action="store_true", help="run the gateway too, an OpenAI-compatible server"
    )
    parser.add_argument(
        "--gateway-args",
        default="",
        metavar="OPTIONS",
        help="further options of `specdec gateway`, as one text, such as "
        "'--workers 2 --api-key-file keys'",
    )
    parser.add_argument(
        "--address",
        default=DEFAULTS.address,
        help="default: %(default)s; 0.0.0.0 serves the network",
    )
    parser.add_argument(
        "--inflight-limit",
        type=int,
        default=DEFAULTS.inflight_limit,
        metavar="N",
        help="prepare 3N threads for calls between models (default: %(default)s); the limit "
        "itself is the parameter inflight_limit of the model specdec",
    )
    parser.add_argument(
        "--drain-s",
        type=float,
        default=DEFAULTS.drain_s,
        metavar="S",
        help="seconds that requests in flight may take after a stop (default: %(default)g)",
    )
    parser.add_argument(
        "--hang-s",
        type=float,
        default=DEFAULTS.hang_s,
        metavar="S",
        help="start the server again when a process of it sends no heartbeat for so many seconds "
        "(default: %(default)g)",
    )
    parser.add_argument("--exit-timeout-s", action=_Renamed, help=argparse.SUPPRESS)
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
        default=DEFAULTS.trace_every,
        metavar="N",
        help="trace one request in N (default: %(default)s)",
    )
    parser.add_argument(
        "--admin-key-file",
        type=Path,
        metavar="FILE",
        help="holds the key (HTTP header admin-key) for loading models, shared memory, trace and "
        "log settings; made if it is missing (default: these are closed)",
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
