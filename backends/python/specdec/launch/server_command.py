"""Check the settings of a tritonserver run and turn them into its command line."""

from __future__ import annotations

import errno
import math
import re
import socket
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specdec.gateway.settings import DEFAULT_PORT as OPENAI_PORT
from specdec.gateway.settings import PORT_VARIABLE as OPENAI_VARIABLE
from specdec.health.assessment import DEFAULT_HANG_S
from specdec.health.endpoint import DEFAULT_PORT, PORT_VARIABLE
from specdec.launch.admin_key import restricting_options
from specdec.launch.installation import LaunchError
from specdec.launch.triton_options import value_of
from specdec.settings.admission import max_open_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specdec.launch.installation import TritonInstallation

MIB = 1024 * 1024
# Docker's default /dev/shm has 64 MiB, which is enough for three model instances of this size.
_SHM_DEFAULT_BYTES = 16 * MIB
"""Bytes of shared memory of each model instance at its start."""
_SHM_GROWTH_BYTES = 4 * MIB
"""Bytes of shared memory that an instance adds when it needs more."""
PORT_VARIABLES = {
    "http": "HTTP_PORT",
    "grpc": "GRPC_PORT",
    "metrics": "METRICS_PORT",
    "health": PORT_VARIABLE,
    "openai": OPENAI_VARIABLE,
}
"""Environment variables that set the ports, by kind of port."""
REGION_PREFIX = "specdec_run_"
"""Prefix of all names that a server uses in /dev/shm; the supervisor's process id follows it."""
SHM_PREFIX_VARIABLE = "SPECDEC_SHM_PREFIX"
"""Environment variable with the name prefix that a launch script must set for the Python backend's
shared memory, so that the memory is removed after the run."""
TRITON_PORTS = ("http", "grpc", "metrics")
"""Kinds of ports on which tritonserver listens; the supervisor listens on the health port."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Settings of one tritonserver run.

    A port of 0 means any free one (`with_free_ports`). Raises LaunchError for a value out of range.
    """

    model_repository: Path
    address: str = "127.0.0.1"
    """Address on which all ports listen."""
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    health_port: int = DEFAULT_PORT
    """Port on which the supervisor answers /health/live and /health/ready."""
    has_openai: bool = False
    """Whether the gateway runs too."""
    openai_port: int = OPENAI_PORT
    """Port of the gateway."""
    gateway_args: tuple[str, ...] = ()
    """Further options of `specdec gateway`."""
    inflight_limit: int = 64
    """Most requests in flight; sets the number of the Python backend's threads."""
    drain_s: float = 30.0
    """Seconds that requests in flight may take after a stop."""
    hang_s: float = DEFAULT_HANG_S
    """Seconds without a heartbeat after which a process counts as hung."""
    log_verbose: int = 0
    """Level of tritonserver's option --log-verbose."""
    trace_url: str = ""
    """URL that gets spans, by OTLP over HTTP, such as http://host:4318/v1/traces; empty for no
    tracing."""
    trace_every: int = 100
    """Sampling interval of traces: one of this many requests is traced."""
    launch_script: Path | None = None
    """Script that starts tritonserver in another way, such as under mpirun. Its arguments are the
    options in `launch_command`."""
    admin_key_file: Path | None = None
    """File with the key for Triton's administrative APIs; None closes these APIs to everybody."""
    extra_args: tuple[str, ...] = ()
    """Further options for tritonserver, which override ours."""

    def __post_init__(self) -> None:
        """Raise LaunchError for a value out of range."""
        for kind, port in self.ports.items():
            if not 0 <= port <= 65535:
                raise LaunchError(f"{kind} port must be 0 … 65535; given {port}")
        chosen = [port for port in self.ports.values() if port]
        if len(set(chosen)) < len(chosen):
            raise LaunchError(f"the ports must differ; given {self.ports}")
        if self.inflight_limit < 1:
            raise LaunchError(f"in-flight limit must be at least 1; given {self.inflight_limit}")
        if not 0 <= self.drain_s < math.inf:
            raise LaunchError(f"drain limit must be 0 s or more; given {self.drain_s:g}")
        if not 1 <= self.hang_s < math.inf:
            raise LaunchError(f"hang limit must be 1 s or more; given {self.hang_s:g}")
        if not (self.has_http or _is_on("--allow-grpc", self.extra_args)):
            raise LaunchError("one of --allow-http and --allow-grpc must be on; both are off")
        if self.trace_every < 1:
            raise LaunchError(f"one request in 1 or more is traced; given {self.trace_every}")

    @property
    def ports(self) -> dict[str, int]:
        """The ports by kind: http, grpc, metrics and health, and openai if the gateway runs."""
        kinds = [kind for kind in PORT_VARIABLES if kind != "openai" or self.has_openai]
        return {kind: getattr(self, f"{kind}_port") for kind in kinds}

    @property
    def has_http(self) -> bool:
        """Whether Triton's HTTP endpoint is on; it is by default."""
        return _is_on("--allow-http", self.extra_args)

    @property
    def is_explicit(self) -> bool:
        """Whether the server starts with only those models that --load-model names."""
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
        """The reachable host as written in a URL, with brackets around IPv6."""
        host = self.reachable_host
        return f"[{host}]" if ":" in host else host


def with_free_ports(settings: ServeSettings) -> ServeSettings:
    """Return the settings with every port 0 replaced by one that is free now.

    Raises LaunchError if a given port is taken or the address cannot be used.
    """
    ports = {}
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    # All sockets stay open until the last port is known, so that the ports differ.
    with ExitStack() as stack:
        for kind, port in settings.ports.items():
            probe = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            # The server sets it too. Without it, a port that was just freed counts as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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

    A config.pbtxt with the parameter `checkpoint_dir: checkpoint` means that `specdec build pair`
    fills weights into its version directory. In explicit mode only models named by --load-model
    count.
    """
    model_repository = settings.model_repository
    configurations = sorted(model_repository.glob("*/config.pbtxt"))
    if not configurations:
        raise LaunchError(
            f"no model in {model_repository}: no */config.pbtxt there; "
            "`specdec build pair` fills it"
        )
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
            f"no weights for {', '.join(missing)} in {model_repository}: run "
            "`specdec build pair`, which fills <model>/1/checkpoint"
        )


def python_backend_options(inflight_limit: int, shm_prefix: str) -> list[str]:
    """Return tritonserver's options for its Python backend: threads and shared memory."""
    values = {
        "thread-pool-size": max_open_calls(inflight_limit),
        "shm-default-byte-size": _SHM_DEFAULT_BYTES,
        "shm-growth-byte-size": _SHM_GROWTH_BYTES,
        "shm-region-prefix-name": shm_prefix,
    }
    return [f"--backend-config=python,{name}={value}" for name, value in values.items()]


def server_command(
    settings: ServeSettings,
    installation: TritonInstallation,
    backend_directory: Path | None,
    shm_prefix: str,
) -> list[str]:
    """Return tritonserver's command line; `extra_args` come last and so override other options.

    `backend_directory` replaces Triton's own; None keeps it. Names of the Python backend's shared
    memory begin with `shm_prefix`.
    """
    command = [str(installation.binary), f"--model-repository={settings.model_repository}"]
    if backend_directory is not None:
        command.append(f"--backend-directory={backend_directory}")
    command += _listen_options(settings)
    command += python_backend_options(settings.inflight_limit, shm_prefix)
    # To complete a configuration, Triton starts the Python model once more. Ours are complete.
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
    # Without a GPU, NVML and DCGM would log errors at every start.
    if not Path("/dev/nvidiactl").exists():
        command.append("--allow-gpu-metrics=false")
    command += restricting_options(settings.admin_key_file, settings.extra_args)
    return [*command, *settings.extra_args]


def launch_command(settings: ServeSettings) -> list[str]:
    """Return the command line of `settings.launch_script`, which sets all other options itself."""
    options = [*_listen_options(settings), f"--exit-timeout-secs={math.ceil(settings.drain_s)}"]
    options += restricting_options(settings.admin_key_file, settings.extra_args)
    return ["/bin/bash", str(settings.launch_script), *options, *settings.extra_args]


def _is_on(option: str, arguments: Sequence[str]) -> bool:
    """Say whether a switch of Triton is on; if it is not given, it is."""
    return value_of(option, arguments).lower() not in {"false", "0", "no", "off"}


def _listen_options(settings: ServeSettings) -> list[str]:
    options = []
    for kind in TRITON_PORTS:
        options.append(f"--{kind}-address={_listen_address(kind, settings.address)}")
        options.append(f"--{kind}-port={settings.ports[kind]}")
    return options


def _listen_address(kind: str, address: str) -> str:
    """Return an IP address in the form for gRPC or for libevhtp, Triton's HTTP server."""
    if ":" not in address:
        return address
    return f"[{address}]" if kind == "grpc" else f"ipv6:{address}"
