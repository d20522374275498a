"""The orchestrator's Prometheus metrics; the metrics page shows them with prefix `specdec_`."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from specdec.health.occupancy import USAGE_HELP, WAITING_HELP


class Counter(Enum):
    """The counters, with their help texts as values."""

    requests_total = "Requests, by how they ended"
    shed_total = "Requests refused before any work, by reason"
    prompt_tokens_total = "Prompt tokens of admitted requests"
    generation_tokens_total = "Tokens sent to clients"
    num_drafts_total = "Rounds with a draft (vLLM: spec_decode_num_drafts)"
    num_draft_tokens_total = "Draft tokens proposed"
    num_accepted_tokens_total = "Draft tokens that were accepted and sent"
    num_accepted_tokens_per_pos_total = "Accepted draft tokens, by position in the draft from 0"
    speculation_switches_total = (
        "Times that the controller switched speculation on or off for a task"
    )
    draft_failures_total = "Drafts that failed or came too late; the request went on without them"


class Gauge(Enum):
    """The gauges, with their help texts as values."""

    inflight_requests = "Requests in flight"
    inflight_limit = "Most requests in flight"
    waiting_requests = WAITING_HELP
    kv_cache_usage = USAGE_HELP
    acceptance_alpha = "Acceptance estimate: sum of accepted / sum of min(accepted + 1, drafted)"
    draft_tokens_k = (
        "Draft tokens per round that the controller chooses (copy drafters: mean); 0: off"
    )
    speculation_enabled = (
        "1: the controller speculates on this task at the present load; 0: it does not"
    )
    estimated_speedup = (
        "Predicted tokens per second of the controller's choice / without speculation"
    )
    measured_speedup = "Measured tokens per second / those of the control group without speculation"
    measured_speedup_low = "Lower end of the 95 % interval of measured_speedup"
    measured_speedup_high = "Upper end of the 95 % interval of measured_speedup"
    draft_stale = "1: the drafter was trained on another target than the one served; 0: on this one"


SUMMED = frozenset({Gauge.inflight_requests, Gauge.inflight_limit, Gauge.draft_stale})
"""Gauges that show the sum over the orchestrator's instances; others show the last value set."""


class Histogram(Enum):
    """The histograms, all in seconds, with their help texts as values."""

    time_to_first_token_seconds = "From arrival to the first tokens sent"
    inter_token_latency_seconds = "(end to end - first token) / (tokens - 1), per request"
    e2e_request_latency_seconds = "From arrival to the last response"
    target_step_seconds = (
        "One call of the target engine, or one response of its stream while off; prompts included"
    )
    draft_step_seconds = "One proposal of a drafter, the whole draft"


class MetricsSink(Protocol):
    """A receiver of metric updates, which takes them from any thread without blocking it."""

    def add(self, counter: Counter, amount: float = 1.0, **labels: str) -> None:
        """Add `amount` to a counter."""

    def set(self, gauge: Gauge, value: float, **labels: str) -> None:
        """Set a gauge to `value`."""

    def observe(self, histogram: Histogram, seconds: float) -> None:
        """Add a sample to a histogram."""
