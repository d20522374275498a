"""The command `specdec health`: ask the supervisor whether requests can be answered."""

from __future__ import annotations

import argparse
import http.client
import os
import sys
from http import HTTPStatus

from specdec.health.endpoint import DEFAULT_PORT, PORT_VARIABLE


def main(argv: list[str]) -> int:
    """Print the supervisor's answer in one line, and return the exit status.

    The status is 0 if the server is ready or, with --live, if the supervisor runs; else it is 1.
    """
    parser = argparse.ArgumentParser(
        prog="specdec health",
        description="Ask the supervisor of `specdec serve` whether requests can be answered. "
        "Exit status 0: yes; 1: no, with one line that says why.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument(
        "--port",
        type=int,
        # Given as text, so that argparse refuses a variable that is no number.
        default=os.environ.get(PORT_VARIABLE) or str(DEFAULT_PORT),
        help=f"default: ${PORT_VARIABLE}, else {DEFAULT_PORT}",
    )
    parser.add_argument("--live", action="store_true", help="ask for liveness instead")
    parser.add_argument("--timeout-s", type=float, default=3.0, help="default: %(default)s")
    arguments = parser.parse_args(argv)
    path = "/health/live" if arguments.live else "/health/ready"
    connection = http.client.HTTPConnection(
        arguments.host, arguments.port, timeout=arguments.timeout_s
    )
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        line, is_ok = response.read(1000).decode(errors="replace"), response.status == HTTPStatus.OK
    except (OSError, http.client.HTTPException) as error:
        line = f"no supervisor answers on {arguments.host}:{arguments.port}: {error}"
        is_ok = False
    finally:
        connection.close()
    sys.stdout.write(f"{line.strip()}\n")
    return 0 if is_ok else 1
