"""One function per metric, with its formula in the docstring, from raw unrounded samples.

Times are in seconds. `None` means that a metric has no value in this load test.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from specdec.loadtest.load.samples import OK, ChunkSample, RequestSample, Samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Distribution:
    """Quantiles, mean and maximum of a sample of times, in seconds."""

    num_samples: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of a load test: from `start_s` to `end_s` on the test's clock (seconds)."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """The length of the window in seconds."""
        return self.end_s - self.start_s


def quantile(values: Sequence[float], fraction: float) -> float:
    """Return the quantile at `fraction`, from 0 to 1.

    Interpolates linearly between the two nearest order statistics, at position (n − 1) · fraction.
    Raises ValueError if there are no values.
    """
    if not values:
        raise ValueError("no values have no quantile")
    ordered = sorted(values)
    position = (len(ordered) - 1) * fraction
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def distribution(values: Sequence[float]) -> Distribution | None:
    """Return quantiles, mean and maximum of a sample of seconds; None if it is empty."""
    if not values:
        return None
    return Distribution(
        num_samples=len(values),
        mean_s=sum(values) / len(values),
        p50_s=quantile(values, 0.50),
        p95_s=quantile(values, 0.95),
        p99_s=quantile(values, 0.99),
        max_s=max(values),
    )


def time_to_first_token_s(request: RequestSample) -> float | None:
    """Return TTFT: arrival of the first response with tokens − start of the request."""
    return request.ttft_s


def end_to_end_s(request: RequestSample) -> float:
    """Return e2e: end of the stream − start of the request."""
    return request.e2e_s


def inter_token_latency_s(request: RequestSample) -> float | None:
    """Return ITL: (e2e − TTFT) / (num_output_tokens − 1); None below two tokens.

    Tokens of one chunk arrive together, so this is the mean pace of an answer, not a gap.
    """
    if request.ttft_s is None or request.num_output_tokens < 2:
        return None
    return (request.e2e_s - request.ttft_s) / (request.num_output_tokens - 1)


def inter_chunk_latencies_s(chunks: Iterable[ChunkSample]) -> list[float]:
    """Return every ICL: arrival of a chunk − arrival of the chunk before it in the same request."""
    arrivals: dict[str, list[float]] = {}
    for chunk in chunks:
        arrivals.setdefault(chunk.request_id, []).append(chunk.arrival_s)
    return [after - before for times in arrivals.values() for before, after in pairwise(times)]


def tokens_per_chunk(requests: Iterable[RequestSample]) -> float | None:
    """Return Σ num_output_tokens / Σ num_chunks; None without chunks."""
    pairs = [(request.num_output_tokens, request.num_chunks) for request in requests]
    num_chunks = sum(chunks for _, chunks in pairs)
    return sum(tokens for tokens, _ in pairs) / num_chunks if num_chunks else None


def output_tokens_per_s(samples: Samples, window: Window) -> float | None:
    """Return tokens that arrived inside the window / its length.

    Tokens of failed requests count too.
    """
    starts = {request.request_id: request.start_s for request in samples.requests}
    num_tokens = sum(
        chunk.num_tokens
        for chunk in samples.chunks
        if window.start_s <= starts[chunk.request_id] + chunk.arrival_s <= window.end_s
    )
    return num_tokens / window.length_s if window.length_s > 0 else None


def requests_per_s(requests: Iterable[RequestSample], window: Window) -> float | None:
    """Return requests that were answered in full inside the window / its length."""
    ends = [request.start_s + request.e2e_s for request in requests if request.outcome == OK]
    num_done = sum(window.start_s <= end <= window.end_s for end in ends)
    return num_done / window.length_s if window.length_s > 0 else None


def fail_ratio(requests: Sequence[RequestSample]) -> float | None:
    """Return requests whose outcome is not ok / all requests."""
    return sum(request.outcome != OK for request in requests) / len(requests) if requests else None


def outcomes(requests: Iterable[RequestSample]) -> dict[str, int]:
    """Return the number of requests by outcome, the most frequent first."""
    return dict(Counter(request.outcome for request in requests).most_common())


def acceptance_rate(requests: Sequence[RequestSample]) -> float | None:
    """Return Σ accepted / Σ drafted tokens; it falls as k grows.

    vLLM and NVIDIA define it so.
    """
    num_drafted = sum(request.num_draft_tokens or 0 for request in requests)
    num_accepted = sum(request.num_accepted_tokens or 0 for request in requests)
    return num_accepted / num_drafted if num_drafted else None


def conditional_acceptance(requests: Sequence[RequestSample]) -> float | None:
    """Return α̂ = Σ accepted / Σ min(accepted + 1, k) over the rounds with a draft.

    Answers that do not report the divisor are left out.
    """
    known = [request for request in requests if request.num_compared]
    num_compared = sum(request.num_compared or 0 for request in known)
    num_accepted = sum(request.num_accepted_tokens or 0 for request in known)
    return num_accepted / num_compared if num_compared else None


def mean_draft_length(requests: Sequence[RequestSample]) -> float | None:
    """Return mean k = Σ drafted tokens / Σ rounds with a draft."""
    num_rounds = sum(request.num_rounds or 0 for request in requests)
    num_drafted = sum(request.num_draft_tokens or 0 for request in requests)
    return num_drafted / num_rounds if num_rounds else None


def mean_acceptance_length(requests: Sequence[RequestSample]) -> float | None:
    """Return τ = 1 + Σ accepted / Σ rounds with a draft; the target's own token is the 1."""
    num_rounds = sum(request.num_rounds or 0 for request in requests)
    num_accepted = sum(request.num_accepted_tokens or 0 for request in requests)
    return 1 + num_accepted / num_rounds if num_rounds else None
