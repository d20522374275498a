"""Update Triton's custom metrics, always from the same thread.

If several threads update custom metrics, tritonserver 2.51.0 aborts (boost::interprocess
lock_exception). Each update is also a round trip to the server process. So requests only queue
their updates, and one thread sums up the counters and sends them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from enum import Enum
from typing import Any

import triton_python_backend_utils as pb_utils

from specdec.serving.metrics.definitions import SUMMED, Counter, Gauge, Histogram
from specdec.triton_backend.process_end import keep_until_exit

FLUSH_PERIOD_S = 0.05
"""Seconds for which updates are gathered before they are sent together."""

_SECONDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds of the histograms' buckets, in seconds."""

Labels = tuple[tuple[str, str], ...]
_Update = tuple[Enum, Labels, float]


class MetricsRecorder:
    """The MetricsSink inside Triton, for one instance of the orchestrator.

    `common_labels` are added to the labels of every metric.
    """

    def __init__(self, common_labels: Mapping[str, str]) -> None:
        self._common = dict(common_labels)
        self._queue: queue.SimpleQueue[_Update | None] = queue.SimpleQueue()
        self._families: dict[Enum, Any] = {}
        kinds = pb_utils.MetricFamily
        for group, kind in (
            (Counter, kinds.COUNTER),
            (Gauge, kinds.GAUGE),
            (Histogram, kinds.HISTOGRAM),
        ):
            for member in group:
                self._families[member] = pb_utils.MetricFamily(
                    name=f"specdec_{member.name}", description=str(member.value), kind=kind
                )
        self._metrics: dict[tuple[Enum, Labels], Any] = {}
        self._summed: dict[tuple[Gauge, Labels], float] = {}
        """This instance's present part of each summed gauge."""
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def add(self, counter: Counter, amount: float = 1.0, **labels: str) -> None:
        self._queue.put((counter, tuple(labels.items()), amount))

    def set(self, gauge: Gauge, value: float, **labels: str) -> None:
        self._queue.put((gauge, tuple(labels.items()), value))

    def observe(self, histogram: Histogram, seconds: float) -> None:
        self._queue.put((histogram, (), seconds))

    def close(self) -> None:
        """Send queued updates and subtract this instance from summed gauges, within 10 s.

        The metrics stay on the page, where another instance or a new process may use them.
        """
        self._queue.put(None)
        self._thread.join(timeout=10)
        keep_until_exit(*self._metrics.values(), *self._families.values())

    def _run(self) -> None:
        closing = threading.Event()
        while not closing.is_set():
            updates: list[_Update] = []
            update = self._queue.get()
            while update is not None:
                updates.append(update)
                try:
                    update = self._queue.get_nowait()
                except queue.Empty:
                    break
            else:
                closing.set()
            self._try_to_send(updates)
            closing.wait(FLUSH_PERIOD_S)
        self._try_to_send([(gauge, labels, 0.0) for gauge, labels in self._summed])

    def _try_to_send(self, updates: list[_Update]) -> None:
        try:
            self._send(updates)
        except Exception as error:  # noqa: BLE001 - without this thread the queue only grows
            pb_utils.Logger.log_error(f"[specdec] metrics are incomplete: {error!r}")

    def _send(self, updates: list[_Update]) -> None:
        sums: dict[tuple[Enum, Labels], float] = {}
        for member, labels, value in updates:
            if isinstance(member, Histogram):
                self._metric(member, labels).observe(value)
            elif isinstance(member, Gauge):
                sums[member, labels] = value
            else:
                sums[member, labels] = sums.get((member, labels), 0.0) + value
        for (member, labels), value in sums.items():
            metric = self._metric(member, labels)
            if not isinstance(member, Gauge):
                metric.increment(value)
            elif member in SUMMED:
                metric.increment(value - self._summed.get((member, labels), 0.0))
                self._summed[member, labels] = value
            else:
                metric.set(value)

    def _metric(self, member: Enum, labels: Labels) -> Any:
        key = (member, labels)
        if key not in self._metrics:
            arguments: dict[str, Any] = {"labels": {**self._common, **dict(labels)}}
            if isinstance(member, Histogram):
                arguments["buckets"] = list(_SECONDS)
            self._metrics[key] = self._families[member].Metric(**arguments)
        return self._metrics[key]
