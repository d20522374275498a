"""The settings of a gateway."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from specdec.errors import ConfigurationError

DEFAULT_PORT = 9000
"""Port of NVIDIA's OpenAI frontend, which clients of Triton may have configured."""
PORT_VARIABLE = "OPENAI_PORT"
"""Environment variable that sets the port."""


def _limit(default: float, text: str) -> Any:
    """Return the field of a limit; `text` describes it in the help of `specdec gateway`."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Limits of each worker process. Invalid values raise ConfigurationError."""

    max_body_bytes: int = _limit(4 * 2**20, "most bytes of a body")
    """A context of 128k tokens as text needs about 1 MiB."""
    max_choices: int = _limit(16, "most answers of a request: its prompts times n")
    """Each takes a slot of the server."""
    max_requests: int = _limit(512, "most requests that are read or answered at a time")
    max_connections: int = _limit(4096, "most connections, idle ones included")
    body_s: float = _limit(30.0, "seconds within which a body must have arrived")
    header_s: float = _limit(10.0, "seconds within which the headers must have arrived")
    send_s: float = _limit(30.0, "seconds that a client may leave an answer unread")
    keep_alive_s: int = _limit(75, "seconds that an idle connection stays open")
    """More than the 60 s of usual load balancers, which would otherwise send a request into a
    closing connection."""
    drain_s: float = _limit(30.0, "seconds that requests in flight may take after a stop")

    def __post_init__(self) -> None:
        """Check the values."""
        for each in fields(self):
            value = getattr(self, each.name)
            may_be_zero = each.name == "drain_s"
            if not (0 < value < math.inf or (may_be_zero and value == 0)):
                raise ConfigurationError(f"{each.name} must be above 0; given {value:g}")


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The settings of a gateway. Invalid values raise ConfigurationError."""

    server: str = "127.0.0.1:8001"
    """Host and gRPC port of tritonserver."""
    models: Mapping[str, str] = field(default_factory=lambda: {"specdec": "specdec"})
    """Triton's name of each model, by the name that clients use."""
    address: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    health_url: str = ""
    """URL that answers 200 if tritonserver can answer requests, as the supervisor's /health/ready;
    empty to ask the models themselves."""
    metrics_url: str = ""
    """URL of tritonserver's metrics page, for the metrics that proxies need (ServerMetrics); empty
    to go without them."""
    api_key_file: Path | None = None
    """File with the keys of clients (`ApiKeys`); None to ask for no key."""
    certificate_file: Path | None = None
    """TLS certificate chain in PEM; None to serve plain HTTP."""
    private_key_file: Path | None = None
    num_workers: int = 1
    """Worker processes."""
    limits: GatewayLimits = field(default_factory=GatewayLimits)

    def __post_init__(self) -> None:
        """Check the values."""
        if not 0 <= self.port <= 65535:
            raise ConfigurationError(f"port must be 0 … 65535; given {self.port}")
        if not self.models:
            raise ConfigurationError("at least one model must be named")
        for name, given in (("health", self.health_url), ("metrics", self.metrics_url)):
            if given and not _is_http(given):
                raise ConfigurationError(f"{name} URL must be http://…; given {given!r}")
        if self.num_workers < 1:
            raise ConfigurationError(f"workers must be at least 1; given {self.num_workers}")
        if (self.certificate_file is None) != (self.private_key_file is None):
            raise ConfigurationError("the TLS certificate and its key must be given together")

    @property
    def has_tls(self) -> bool:
        return self.certificate_file is not None


def _is_http(text: str) -> bool:
    """Return whether a text is a URL of plain HTTP."""
    try:
        url = urlsplit(text)
        return url.scheme == "http" and bool(url.hostname) and url.port != 0
    except ValueError:  # The port is no number.
        return False
