"""All figures of one load test, computed from its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec.loadtest.load import measures
from specdec.loadtest.load.measures import Distribution, Window
from specdec.loadtest.load.samples import OK, RequestSample, Samples

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class CategorySummary:
    """The figures of one category of prompts; times are in seconds."""

    num_ok: int
    ttft_p50_s: float | None
    itl_p50_s: float | None
    acceptance_rate: float | None
    mean_acceptance_length: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a load test, from requests that started inside `window`.

    Latencies come from requests that were answered in full. `tokens_per_s` counts every token that
    arrived inside the window, and `requests_per_s` every answer that ended in it.
    """

    window: Window
    num_requests: int
    num_ok: int
    num_output_tokens: int
    outcomes: dict[str, int]
    fail_ratio: float | None
    tokens_per_s: float | None
    requests_per_s: float | None
    ttft: Distribution | None
    itl: Distribution | None
    icl: Distribution | None
    e2e: Distribution | None
    tokens_per_chunk: float | None
    acceptance_rate: float | None
    conditional_acceptance: float | None
    mean_acceptance_length: float | None
    mean_draft_length: float | None
    max_lateness_s: float
    categories: dict[str, CategorySummary]


def measured_window(samples: Samples, warmup_s: float, duration_s: float | None) -> Window:
    """Return the window from the first start after the warm-up to the end of the test.

    The test ends with its last answer, or after `duration_s` if that is earlier.
    """
    last_end_s = max((request.start_s + request.e2e_s for request in samples.requests), default=0)
    end_s = last_end_s if duration_s is None else min(duration_s, last_end_s)
    starts_s = (request.start_s for request in samples.requests if request.start_s >= warmup_s)
    start_s = min(starts_s, default=warmup_s)
    return Window(start_s, max(start_s, end_s))


def latency_samples(samples: Samples, window: Window) -> dict[str, list[float]]:
    """Return the raw latencies in seconds by metric: `ttft`, `itl`, `icl` and `e2e`."""
    good = [request for request in _inside(samples, window) if request.outcome == OK]
    ids = {request.request_id for request in good}
    ttft = [measures.time_to_first_token_s(request) for request in good]
    itl = [measures.inter_token_latency_s(request) for request in good]
    chunks = [chunk for chunk in samples.chunks if chunk.request_id in ids]
    return {
        "ttft": [value for value in ttft if value is not None],
        "itl": [value for value in itl if value is not None],
        "icl": measures.inter_chunk_latencies_s(chunks),
        "e2e": [measures.end_to_end_s(request) for request in good],
    }


def summarize(samples: Samples, warmup_s: float, duration_s: float | None) -> Summary:
    """Compute every figure of a load test."""
    window = measured_window(samples, warmup_s, duration_s)
    requests = _inside(samples, window)
    good = [request for request in requests if request.outcome == OK]
    latencies = {
        name: measures.distribution(values)
        for name, values in latency_samples(samples, window).items()
    }
    return Summary(
        window=window,
        num_requests=len(requests),
        num_ok=len(good),
        num_output_tokens=sum(request.num_output_tokens for request in good),
        outcomes=measures.outcomes(requests),
        fail_ratio=measures.fail_ratio(requests),
        tokens_per_s=measures.output_tokens_per_s(samples, window),
        requests_per_s=measures.requests_per_s(samples.requests, window),
        tokens_per_chunk=measures.tokens_per_chunk(good),
        acceptance_rate=measures.acceptance_rate(good),
        conditional_acceptance=measures.conditional_acceptance(good),
        mean_acceptance_length=measures.mean_acceptance_length(good),
        mean_draft_length=measures.mean_draft_length(good),
        max_lateness_s=max((request.lateness_s for request in requests), default=0.0),
        categories=_by_category(good),
        **latencies,
    )


def _inside(samples: Samples, window: Window) -> list[RequestSample]:
    return [request for request in samples.requests if request.start_s >= window.start_s]


def _by_category(good: Sequence[RequestSample]) -> dict[str, CategorySummary]:
    groups: dict[str, list[RequestSample]] = {}
    for request in good:
        groups.setdefault(request.category, []).append(request)
    return {name: _of_category(groups[name]) for name in sorted(groups)}


def _of_category(requests: Sequence[RequestSample]) -> CategorySummary:
    ttft = [value for value in map(measures.time_to_first_token_s, requests) if value is not None]
    itl = [value for value in map(measures.inter_token_latency_s, requests) if value is not None]
    return CategorySummary(
        num_ok=len(requests),
        ttft_p50_s=measures.quantile(ttft, 0.5) if ttft else None,
        itl_p50_s=measures.quantile(itl, 0.5) if itl else None,
        acceptance_rate=measures.acceptance_rate(requests),
        mean_acceptance_length=measures.mean_acceptance_length(requests),
    )
