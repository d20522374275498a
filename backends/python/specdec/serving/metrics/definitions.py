"""The orchestrator's Prometheus metrics; the metrics page shows them with prefix `specdec_`."""

from __future__ import annotations

import threading
from enum import Enum
from typing import Protocol

MAX_TASKS = 32
"""Most tasks with a label value of their own; the limit bounds the number of time series."""
OTHER_TASK = "other"
"""Label value of all further tasks."""


class Counter(Enum):
    """The counters, with their help texts as values."""

    requests_total = "Requests by how they ended"
    shed_total = "Requests refused before any work, by reason"
    prompt_tokens_total = "Prompt tokens of admitted requests"
    generation_tokens_total = "Tokens sent to clients"
    num_drafts_total = "Rounds with a draft (vLLM: spec_decode_num_drafts)"
    num_draft_tokens_total = "Tokens proposed by drafters"
    num_accepted_tokens_total = "Proposed tokens that were confirmed and sent"
    num_accepted_tokens_per_pos_total = "The same by place in the draft, from 0"
    speculation_switches_total = "Times that speculation was switched off or on for a task"
    draft_failures_total = "Drafts that failed or came too late; the request went on without"


class Gauge(Enum):
    """The gauges, with their help texts as values."""

    inflight_requests = "Requests being served"
    inflight_limit = "Requests that may be served at once"
    acceptance_alpha = "Share of judged guesses that stood: accepted / min(accepted + 1, drafted)"
    draft_tokens_k = "Guesses a round that the controller asks for, or that a copy has had; 0: none"
    speculation_enabled = "1: the controller speculates on this task at the present load; 0: not"
    estimated_speedup = "Tokens per second of the controller's choice over the target alone"
    measured_speedup = "The same as measured against the control group of plain requests"
    measured_speedup_low = "Lower end of its 95 % interval"
    measured_speedup_high = "Upper end of its 95 % interval"
    draft_stale = "1: the draft was trained on another target than the one served; 0: on this one"


SUMMED = frozenset({Gauge.inflight_requests, Gauge.inflight_limit, Gauge.draft_stale})
"""Gauges that show the sum over the orchestrator's instances; others show the last value set."""


class Histogram(Enum):
    """The histograms, all in seconds, with their help texts as values."""

    time_to_first_token_seconds = "Arrival to the first tokens sent"
    inter_token_latency_seconds = "(end to end - first token) / (tokens - 1), per request"
    e2e_request_latency_seconds = "Arrival to the last response"
    target_step_seconds = "One call of the target engine, first (prompt) calls included"
    draft_step_seconds = "One proposal of a drafter, whole draft"


class MetricsSink(Protocol):
    """A receiver of metric updates, which takes them from any thread without blocking it."""

    def add(self, counter: Counter, amount: float = 1.0, **labels: str) -> None:
        """Add `amount` to a counter."""

    def set(self, gauge: Gauge, value: float, **labels: str) -> None:
        """Set a gauge to `value`."""

    def observe(self, histogram: Histogram, seconds: float) -> None:
        """Add a sample to a histogram."""


class TaskLabels:
    """The tasks' label values: the first MAX_TASKS keep their names, the rest share OTHER_TASK.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def label(self, task: str) -> str:
        with self._lock:
            if task not in self._known and len(self._known) >= MAX_TASKS:
                return OTHER_TASK
            self._known.add(task)
            return task
