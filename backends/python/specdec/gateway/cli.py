"""`specdec gateway`: an OpenAI-compatible server in front of a running tritonserver."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import fields
from pathlib import Path

from specdec.errors import ConfigurationError
from specdec.gateway.settings import (
    DEFAULT_PORT,
    PORT_VARIABLE,
    GatewayLimits,
    GatewaySettings,
)
from specdec.gateway.transport.keys import KEY_VARIABLE
from specdec.gateway.workers import serve_gateway
from specdec.parent_process import end_with_parent

DEFAULTS = GatewaySettings()


def main(argv: list[str]) -> int:
    """Serve until a signal and return the exit status; 1 if the gateway cannot be started."""
    arguments = _parser().parse_args(argv)
    if arguments.end_with_parent is not None:
        end_with_parent(arguments.end_with_parent)
    try:
        return serve_gateway(_settings(arguments))
    except ConfigurationError as error:
        print(f"specdec gateway: {error}", file=sys.stderr)
        return 1


def _settings(arguments: argparse.Namespace) -> GatewaySettings:
    models = dict(_named(each) for each in arguments.model) or DEFAULTS.models
    limits = {each.name: getattr(arguments, each.name) for each in fields(GatewayLimits)}
    return GatewaySettings(
        server=arguments.server,
        models=models,
        address=arguments.address,
        port=arguments.port,
        health_url=arguments.health_url,
        metrics_url=arguments.metrics_url,
        api_key_file=arguments.api_key_file,
        certificate_file=arguments.certificate_file,
        private_key_file=arguments.private_key_file,
        num_workers=arguments.workers,
        limits=GatewayLimits(**limits),
    )


def _named(text: str) -> tuple[str, str]:
    """Return the name for clients and Triton's name of `NAME=MODEL` or `MODEL`."""
    name, _, model = text.partition("=")
    return name, model or name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec gateway",
        description="Serve OpenAI's API for the models of a running tritonserver. "
        "Limits count for each worker.",
    )
    parser.add_argument(
        "--server",
        default=DEFAULTS.server,
        metavar="HOST:PORT",
        help="gRPC address of tritonserver (default: %(default)s)",
    )
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME[=MODEL]",
        help="a model for clients, and its name in Triton if that differs; repeat it for more "
        "models or for aliases (default: specdec)",
    )
    parser.add_argument("--address", default=DEFAULTS.address, help="default: %(default)s")
    parser.add_argument(
        "--port",
        type=int,
        # Given as text, so that argparse refuses a variable that is no number.
        default=os.environ.get(PORT_VARIABLE) or str(DEFAULT_PORT),
        help=f"default: ${PORT_VARIABLE}, else {DEFAULT_PORT}; 0 takes a free one",
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="processes (default: %(default)s)"
    )
    parser.add_argument(
        "--health-url",
        default="",
        metavar="URL",
        help="answers 200 if an answer can come, such as http://HOST:8003/health/ready of "
        "`specdec serve` (default: ask the models)",
    )
    parser.add_argument(
        "--metrics-url",
        default="",
        metavar="URL",
        help="tritonserver's metrics page, such as http://HOST:8002/metrics; adds its running and "
        "waiting requests and its KV cache use to the gateway's metrics, for proxies "
        "(default: none)",
    )
    parser.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="a key on each line, and after a space its tenant; the environment variable "
        f"{KEY_VARIABLE} adds one key (default: no key is needed)",
    )
    parser.add_argument("--certificate-file", type=Path, metavar="FILE", help="TLS chain in PEM")
    parser.add_argument("--private-key-file", type=Path, metavar="FILE", help="TLS key in PEM")
    for each in fields(GatewayLimits):
        default = getattr(DEFAULTS.limits, each.name)
        parser.add_argument(
            f"--{each.name.replace('_', '-')}",
            type=type(default),
            default=default,
            metavar="S" if each.name.endswith("_s") else "N",
            help=f"{each.metadata['help']} (default: %(default)s)",
        )
    parser.add_argument("--end-with-parent", type=int, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
