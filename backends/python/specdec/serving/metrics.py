"""The Prometheus families of the orchestrator, and the one thread that updates them.

Updating a custom metric from several threads aborts the whole tritonserver 2.51.0
(boost::interprocess lock_exception), and each update is a round trip to the server process; so
requests put their updates into a queue, and one thread sums the counters and sends them on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from enum import Enum
from typing import Any

import triton_python_backend_utils as pb_utils

FLUSH_PERIOD_S = 0.05
MAX_TASKS = 32
OTHER_TASK = "other"

_SECONDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)


class Counter(Enum):
    """Counters; the value is the help text."""

    requests_total = "Requests by how they ended"
    shed_total = "Requests refused before any work, by reason"
    prompt_tokens_total = "Prompt tokens of admitted requests"
    generation_tokens_total = "Tokens sent to clients"
    num_drafts_total = "Rounds with a draft (vLLM: spec_decode_num_drafts)"
    num_draft_tokens_total = "Tokens proposed by drafters"
    num_accepted_tokens_total = "Proposed tokens that were confirmed and sent"
    num_accepted_tokens_per_pos_total = "The same by place in the draft, from 0"
    draft_failures_total = "Drafts that failed or came too late; the request went on without"


class Gauge(Enum):
    """Gauges; the value is the help text."""

    inflight_requests = "Requests being served"
    inflight_limit = "Requests that may be served at once"


class Histogram(Enum):
    """Histograms over seconds; the value is the help text."""

    time_to_first_token_seconds = "Arrival to the first tokens sent"
    inter_token_latency_seconds = "(end to end - first token) / (tokens - 1), per request"
    e2e_request_latency_seconds = "Arrival to the last response"
    target_step_seconds = "One call of the target engine, first (prompt) calls included"
    draft_step_seconds = "One proposal of a drafter, whole draft"


Labels = tuple[tuple[str, str], ...]
_Update = tuple[Enum, Labels, float]


class MetricsRecorder:
    """Takes updates from any thread; names get the prefix `specdec_`."""

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
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def add(self, counter: Counter, amount: float = 1.0, **labels: str) -> None:
        if amount:
            self._queue.put((counter, tuple(labels.items()), amount))

    def set(self, gauge: Gauge, value: float) -> None:
        self._queue.put((gauge, (), value))

    def observe(self, histogram: Histogram, seconds: float) -> None:
        self._queue.put((histogram, (), seconds))

    def close(self) -> None:
        """Sends what is left, then lets the metrics go (each before its family)."""
        self._queue.put(None)
        self._thread.join(timeout=10)
        self._metrics.clear()
        self._families.clear()

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
            self._send(updates)
            closing.wait(FLUSH_PERIOD_S)

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
            if isinstance(member, Gauge):
                metric.set(value)
            else:
                metric.increment(value)

    def _metric(self, member: Enum, labels: Labels) -> Any:
        key = (member, labels)
        if key not in self._metrics:
            arguments: dict[str, Any] = {"labels": {**self._common, **dict(labels)}}
            if isinstance(member, Histogram):
                arguments["buckets"] = list(_SECONDS)
            self._metrics[key] = self._families[member].Metric(**arguments)
        return self._metrics[key]


class TaskLabels:
    """Task names as label values: the first MAX_TASKS keep their name, the rest share one."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def label(self, task: str) -> str:
        with self._lock:
            if task not in self._known and len(self._known) >= MAX_TASKS:
                return OTHER_TASK
            self._known.add(task)
            return task
