"""The gateway's own metrics, for Prometheus. Those of several workers add up."""

from __future__ import annotations

import os

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of prometheus_client: folder in which workers share their values."""

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper limits of the histograms' buckets, in seconds."""


class GatewayMetrics:
    """The metrics of one worker, or of all workers with DIRECTORY_VARIABLE set."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        name = "specdec_gateway"
        self._requests = Counter(
            f"{name}_requests",
            "HTTP requests by route and status; status 499 is a client that hung up before.",
            ("route", "status"),
            registry=registry,
        )
        self._hang_ups = Counter(
            f"{name}_hang_ups",
            "Requests whose client hung up, or left the answer unread.",
            ("route",),
            registry=registry,
        )
        self._seconds = Histogram(
            f"{name}_request_seconds",
            "Seconds from a request's headers to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._first = Histogram(
            f"{name}_time_to_first_token_seconds",
            "Seconds from a request's headers to the first token.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.num_running = Gauge(
            f"{name}_running_requests",
            "Requests that are being read or answered.",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def answered(
        self, route: str, status: int, seconds: float, first_s: float | None, *, is_hang_up: bool
    ) -> None:
        """Count a request that has ended."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        if first_s is not None:
            self._first.labels(route).observe(first_s)
        if is_hang_up:
            self._hang_ups.labels(route).inc()

    def page(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        registry = self._registry
        if os.environ.get(DIRECTORY_VARIABLE):
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
