"""The metrics by which proxies spread requests over servers, read from tritonserver's page.

Proxies such as the Endpoint Picker of Kubernetes' Gateway API Inference Extension read them on the
port that takes requests: https://github.com/kubernetes-sigs/gateway-api-inference-extension,
proposal 003 (model server protocol).
"""

from __future__ import annotations

import asyncio
import time

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
    registry = CollectorRegistry()
    for name, text, value in (
        ("running", "Requests in flight, those that wait included", _num_running(samples)),
        ("waiting", "Requests that wait for room in an engine", _num_waiting(samples)),
    ):
        Gauge(f"specdec_server_{name}_requests", text, registry=registry).set(value)
    text = "Share of the KV cache in use, of the fullest engine, 0 to 1"
    Gauge("specdec_server_kv_cache_usage", text, registry=registry).set(_usage(samples))
    return generate_latest(registry)


def _num_running(samples: list[Sample]) -> float:
    return sum(each.value for each in samples if each.name == RUNNING)


def _num_waiting(samples: list[Sample]) -> float:
    is_waiting = {"request_type": "waiting"}.items()
    return sum(
        each.value
        for each in samples
        if each.name == WAITING
        or (each.name == COMPILED_REQUESTS and is_waiting <= each.labels.items())
    )


def _usage(samples: list[Sample]) -> float:
    is_fraction = {"kv_cache_block_type": "fraction"}.items()
    return max(
        (
            each.value
            for each in samples
            if each.name == USAGE
            or (each.name == COMPILED_BLOCKS and is_fraction <= each.labels.items())
        ),
        default=0.0,
    )
