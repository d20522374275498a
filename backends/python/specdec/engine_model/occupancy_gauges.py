"""Show on Triton's metrics page how full an engine is, for proxies that spread requests.

The gauges mean what the model-server protocol of Kubernetes' Gateway API Inference Extension
defines: https://github.com/kubernetes-sigs/gateway-api-inference-extension, proposal 003.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton_python_backend_utils as pb_utils

from specdec.health.occupancy import USAGE_HELP, WAITING_HELP, Occupancy
from specdec.triton_backend.process_end import keep_until_exit

_HELPS = {"specdec_waiting_requests": WAITING_HELP, "specdec_kv_cache_usage": USAGE_HELP}
"""The help text of each gauge, by its name."""


class OccupancyGauges:
    """The gauges of one engine.

    Triton allows metric updates on one thread of a process only (serving/metrics/recorder.py).
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        kind = pb_utils.MetricFamily.GAUGE
        self._families = [pb_utils.MetricFamily(name, text, kind) for name, text in _HELPS.items()]
        self._metrics: list[Any] = []

    def show(self, now: Occupancy) -> None:
        """Set the gauges; before the first call they are not on the page."""
        if not self._metrics:
            self._metrics = [family.Metric(labels=self._labels) for family in self._families]
        for metric, value in zip(self._metrics, (now.num_waiting, now.kv_cache_usage), strict=True):
            metric.set(float(value))

    def close(self) -> None:
        """Set the gauges to 0. They stay on the page, where a new process may use them already."""
        for metric in self._metrics:
            metric.set(0.0)
        keep_until_exit(*self._metrics, *self._families)
