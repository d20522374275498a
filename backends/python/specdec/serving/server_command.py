"""Settings of a tritonserver run, the checks before it, and the command line they make."""

from __future__ import annotations

import errno
import math
import re
import socket
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specdec.health.assessment import DEFAULT_HANG_S
from specdec.health.cli import DEFAULT_PORT, PORT_VARIABLE
from specdec.serving.admin_key import restricting_options
from specdec.serving.installation import LaunchError
from specdec.serving.triton_options import value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specdec.serving.installation import TritonInstallation

MIB = 1024 * 1024
# Three model instances together stay under docker's default /dev/shm of 64 MiB.
SHM_DEFAULT_BYTES = 16 * MIB
SHM_GROWTH_BYTES = 4 * MIB
PORT_VARIABLES = {
    "http": "HTTP_PORT",
    "grpc": "GRPC_PORT",
    "metrics": "METRICS_PORT",
    "health": PORT_VARIABLE,
}
REGION_PREFIX = "specdec_run_"
"""Begins the name of everything that a server puts into /dev/shm; a process id follows."""
SHM_PREFIX_VARIABLE = "SPECDEC_SHM_PREFIX"
"""Tells a launch script how to name the Python backend's shared memory, so that it is removed."""
TRITON_PORTS = ("http", "grpc", "metrics")
"""The kinds that tritonserver itself listens on; the supervisor has the health port."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """One tritonserver run. A port of 0 means: take a free one (see with_free_ports).

    Raises LaunchError for a value out of range.
    """

    model_repository: Path
    address: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    health_port: int = DEFAULT_PORT
    """Where the supervisor answers /health/live and /health/ready."""
    inflight_limit: int = 64
    drain_s: float = 30.0
    """Seconds that requests in flight may take after a stop."""
    hang_s: float = DEFAULT_HANG_S
    """Seconds without a heartbeat after which a process counts as hung."""
    log_verbose: int = 0
    trace_url: str = ""
    """Where spans are sent, OTLP over HTTP: http://host:4318/v1/traces; empty for nowhere."""
    trace_every: int = 100
    """One request in so many is traced."""
    launch_script: Path | None = None
    """Starts tritonserver in another way, such as under mpirun; gets our addresses as arguments."""
    admin_key_file: Path | None = None
    """Holds the key for Triton's administrative APIs; None closes them to everybody."""
    extra_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check every range."""
        for kind, port in self.ports.items():
            if not 0 <= port <= 65535:
                raise LaunchError(f"{kind} port must be 0 … 65535; given: {port}")
        chosen = [port for port in self.ports.values() if port]
        if len(set(chosen)) < len(chosen):
            raise LaunchError(f"the ports must differ; given: {self.ports}")
        if self.inflight_limit < 1:
            raise LaunchError(f"in-flight limit must be at least 1; given: {self.inflight_limit}")
        if not 0 <= self.drain_s < math.inf:
            raise LaunchError(f"drain limit must be 0 s or more; given: {self.drain_s:g}")
        if not 1 <= self.hang_s < math.inf:
            raise LaunchError(f"hang limit must be 1 s or more; given: {self.hang_s:g}")
        if not (self.has_http or _is_on("--allow-grpc", self.extra_args)):
            raise LaunchError("one of --allow-http and --allow-grpc must be on; both are off")
        if self.trace_every < 1:
            raise LaunchError(f"one request in 1 or more is traced; given: {self.trace_every}")

    @property
    def ports(self) -> dict[str, int]:
        """The ports by kind: http, grpc, metrics, health."""
        return {kind: getattr(self, f"{kind}_port") for kind in PORT_VARIABLES}

    @property
    def has_http(self) -> bool:
        """Whether Triton's HTTP endpoint is on."""
        return _is_on("--allow-http", self.extra_args)

    @property
    def is_explicit(self) -> bool:
        """Whether models are loaded on demand."""
        return value_of("--model-control-mode", self.extra_args) == "explicit"

    def loads(self, model_name: str) -> bool:
        """Say whether the server loads this model at its start."""
        if not self.is_explicit:
            return True
        return bool({f"--load-model={model_name}", "--load-model=*"} & set(self.extra_args))

    @property
    def reachable_host(self) -> str:
        """The address at which a client on this machine finds the server."""
        everywhere = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
        return everywhere.get(self.address, self.address)

    @property
    def url_host(self) -> str:
        """`reachable_host` in a URL: an IPv6 address in brackets."""
        host = self.reachable_host
        return f"[{host}]" if ":" in host else host


def with_free_ports(settings: ServeSettings) -> ServeSettings:
    """Return the settings with every port 0 replaced by one that is free now.

    Raises LaunchError if a given port is taken.
    """
    ports = {}
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    with ExitStack() as stack:  # all held until all are known, so that they differ
        for kind, port in settings.ports.items():
            probe = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            try:
                probe.bind((settings.address, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise LaunchError(f"cannot use {settings.address}:{port}: {error}") from error
                raise LaunchError(
                    f"{kind} port {port} on {settings.address} is taken; set "
                    f"{PORT_VARIABLES[kind]} or --{kind}-port to another (0: any free one)"
                ) from error
            ports[f"{kind}_port"] = probe.getsockname()[1]
    return replace(settings, **ports)


def check_model_repository(settings: ServeSettings) -> None:
    """Raise LaunchError if there is no model, or if weights that a configuration names are missing.

    A config.pbtxt with `checkpoint_dir: checkpoint` says that its version directory holds weights
    filled by `make setup`. In explicit mode only the models named by --load-model count.
    """
    model_repository = settings.model_repository
    configurations = sorted(model_repository.glob("*/config.pbtxt"))
    if not configurations:
        raise LaunchError(f"no model in {model_repository}: no */config.pbtxt there")
    missing = [
        path.parent.name
        for path in configurations
        if settings.loads(path.parent.name)
        and re.search(
            r'"checkpoint_dir"\s*value\s*{\s*string_value:\s*"checkpoint"', path.read_text("utf-8")
        )
        and not any(path.parent.glob("[0-9]*/checkpoint/config.json"))
    ]
    if missing:
        raise LaunchError(
            f"no weights for {', '.join(missing)} in {model_repository}: run `make setup` "
            "(or `specdec build pair`), which fills <model>/1/checkpoint"
        )


def server_command(
    settings: ServeSettings,
    installation: TritonInstallation,
    backend_directory: Path | None,
    shm_prefix: str,
) -> list[str]:
    """Return tritonserver's command line; extra_args come last, so they win."""
    python_backend = {
        # A blocking BLS call holds a thread; a round has up to two in flight per request.
        "thread-pool-size": 2 * settings.inflight_limit,
        "shm-default-byte-size": SHM_DEFAULT_BYTES,
        "shm-growth-byte-size": SHM_GROWTH_BYTES,
        "shm-region-prefix-name": shm_prefix,
    }
    command = [str(installation.binary), f"--model-repository={settings.model_repository}"]
    if backend_directory is not None:
        command.append(f"--backend-directory={backend_directory}")
    command += _listen_options(settings)
    command += [f"--backend-config=python,{name}={value}" for name, value in python_backend.items()]
    # Completing configurations starts each Python model once more; ours are complete.
    command.append("--disable-auto-complete-config")
    command.append(f"--exit-timeout-secs={math.ceil(settings.drain_s)}")
    command.append(f"--log-verbose={settings.log_verbose}")
    if settings.trace_url:
        command += [
            "--trace-config=mode=opentelemetry",
            "--trace-config=level=TIMESTAMPS",
            f"--trace-config=rate={settings.trace_every}",
            f"--trace-config=opentelemetry,url={settings.trace_url}",
            "--trace-config=opentelemetry,resource=service.name=triton",
        ]
    if not Path("/dev/nvidiactl").exists():
        command.append("--allow-gpu-metrics=false")  # else every start logs NVML and DCGM errors
    command += restricting_options(settings.admin_key_file, settings.extra_args)
    return [*command, *settings.extra_args]


def launch_command(settings: ServeSettings) -> list[str]:
    """Return the command line of `settings.launch_script`, which knows all other options."""
    options = [*_listen_options(settings), f"--exit-timeout-secs={math.ceil(settings.drain_s)}"]
    options += restricting_options(settings.admin_key_file, settings.extra_args)
    return ["/bin/bash", str(settings.launch_script), *options, *settings.extra_args]


def _is_on(option: str, arguments: Sequence[str]) -> bool:
    """Say whether one of Triton's switches that are on by default is not switched off."""
    return value_of(option, arguments).lower() not in {"false", "0", "no", "off"}


def _listen_options(settings: ServeSettings) -> list[str]:
    options = []
    for kind in TRITON_PORTS:
        options.append(f"--{kind}-address={_listen_address(kind, settings.address)}")
        options.append(f"--{kind}-port={settings.ports[kind]}")
    return options


def _listen_address(kind: str, address: str) -> str:
    """Return an address as each of Triton's servers wants it (libevhtp, gRPC)."""
    if ":" not in address:
        return address
    return f"[{address}]" if kind == "grpc" else f"ipv6:{address}"
