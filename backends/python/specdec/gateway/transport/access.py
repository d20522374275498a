"""The record of each HTTP request: it becomes a line of the log, and counts in the metrics."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.gateway.metrics import GatewayMetrics

logger = logging.getLogger("specdec.gateway.transport.access")

NO_CLIENT = 499
"""Status that web servers log for a client that has hung up; nobody gets it."""

MAX_ID_LENGTH = 128
"""Most characters of a client's X-Request-Id; another id is made instead of a longer one."""

NUM_ID_BYTES = 12
"""Random bytes of an id: too many for two ids to be equal by chance."""


@dataclass(slots=True)
class RequestRecord:
    """One HTTP request, as its handler fills it in. It has no text of prompt or answer."""

    method: str
    path: str
    client: str
    """Address of the client."""
    request_id: str
    begun_s: float = field(default_factory=time.monotonic)
    status: int = 0
    """HTTP status; NO_CLIENT if the client hung up before there was one."""
    first_s: float | None = None
    """Seconds to the first token; None without one."""
    error_code: str = ""
    is_hang_up: bool = False
    """Whether the client hung up or read too slowly."""
    labels: dict[str, Any] = field(default_factory=dict)
    """Further facts from the handler, such as model, tenant and numbers of tokens."""

    def first_token(self) -> None:
        """Note the time of the first token."""
        if self.first_s is None:
            self.first_s = time.monotonic() - self.begun_s


def new_record(scope: Mapping[str, Any], headers: Mapping[str, str]) -> RequestRecord:
    """Return the record of a request that begins; `scope` is ASGI's."""
    given = headers.get("x-request-id", "")
    is_usable = 0 < len(given) <= MAX_ID_LENGTH and given.isascii() and given.isprintable()
    client = scope.get("client") or ("", 0)
    return RequestRecord(
        method=scope["method"],
        path=scope["path"],
        client=client[0],
        request_id=given if is_usable else secrets.token_hex(NUM_ID_BYTES),
    )


def write_record(record: RequestRecord, metrics: GatewayMetrics, route: str) -> None:
    """Write a request's line to the log, and count it under its route."""
    seconds = time.monotonic() - record.begun_s
    metrics.answered(route, record.status, seconds, record.first_s, is_hang_up=record.is_hang_up)
    line = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "request_id": record.request_id,
        "client": record.client,
        "method": record.method,
        "path": record.path,
        "status": record.status,
        "ms": round(1000 * seconds, 1),
        "first_token_ms": None if record.first_s is None else round(1000 * record.first_s, 1),
        "hung_up": record.is_hang_up,
        "error": record.error_code or None,
        **record.labels,
    }
    logger.info("%s", json.dumps({name: each for name, each in line.items() if each is not None}))
