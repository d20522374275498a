"""The metrics by which proxies spread requests over servers, read from tritonserver's page.

Proxies such as the Endpoint Picker of Kubernetes' Gateway API Inference Extension read them on the
port that takes requests: https://github.com/kubernetes-sigs/gateway-api-inference-extension,
proposal 003 (model server protocol).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.samples import Sample

from specdec.gateway.probe import get
from specdec.metrics_page import samples_on

PERIOD_S = 0.2
"""Least seconds from one reading of the page to the next; engines update their metrics as often."""

RUNNING = "specdec_inflight_requests"
WAITING = "specdec_waiting_requests"
USAGE = "specdec_kv_cache_usage"
COMPILED_REQUESTS = "nv_trt_llm_request_metrics"
COMPILED_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
"""Metrics of NVIDIA's `tensorrtllm` backend, the engine of compiled targets."""
_NAMES = (RUNNING, WAITING, USAGE, COMPILED_REQUESTS, COMPILED_BLOCKS)


class ServerMetrics:
    """The load of tritonserver: its running and waiting requests, and the use of KV cache."""

    def __init__(self, url: str) -> None:
        """Take the address of tritonserver's metrics page; empty for none."""
        self._url = url
        self._reading = asyncio.Lock()
        self._read_s = -PERIOD_S
        self._page = b""

    async def page(self) -> bytes:
        """Return the metrics in Prometheus' text format; empty if the server cannot be asked.

        They may be PERIOD_S old.
        """
        if not self._url:
            return b""
        async with self._reading:
            if time.monotonic() > self._read_s + PERIOD_S:
                found = await asyncio.to_thread(get, self._url)
                self._page = b"" if found is None else load_page(found.decode(errors="replace"))
                self._read_s = time.monotonic()
            return self._page


def load_page(page: str) -> bytes:
    """Return the three metrics of the load as a page, computed from tritonserver's page.

    Requests are summed up over all models. The use of KV cache is that of the fullest engine.
    """
    lines = [line for line in page.splitlines() if line.startswith(_NAMES)]
    samples = list(samples_on("\n".join(lines)))
    waiting = _values(samples, WAITING)
    waiting += _values(samples, COMPILED_REQUESTS, request_type="waiting")
    usages = _values(samples, USAGE)
    usages += _values(samples, COMPILED_BLOCKS, kv_cache_block_type="fraction")
    registry = CollectorRegistry()
    for name, text, value in (
        (
            "running_requests",
            "Requests in flight, those that wait included",
            sum(_values(samples, RUNNING)),
        ),
        ("waiting_requests", "Requests that wait for room in an engine", sum(waiting)),
        (
            "kv_cache_usage",
            "Share of the KV cache in use, of the fullest engine, 0 to 1",
            max(usages, default=0.0),
        ),
    ):
        Gauge(f"specdec_server_{name}", text, registry=registry).set(value)
    return generate_latest(registry)


def _values(samples: Sequence[Sample], name: str, **labels: str) -> list[float]:
    """Return the values of a metric that has these labels, among others."""
    wanted = labels.items()
    return [each.value for each in samples if each.name == name and wanted <= each.labels.items()]
