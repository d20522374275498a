"""The figures that load generators report, and those that the server counts itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from specdec.metrics_page import samples_on


@dataclass(frozen=True, slots=True)
class Figures:
    """A tool's report of its run; times are means over requests, by the tool's own formulas."""

    num_requests: int
    """Requests that the tool counts as answered."""
    num_errors: int
    num_tokens: int
    """Output tokens of all requests."""
    tokens_per_s: float
    ttft_ms: float
    itl_ms: float
    acceptance: float | None = None
    """Accepted ÷ drafted, of all requests; None if the tool does not report it."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The server's own counts: requests by their end, and output tokens."""

    num_ok: int = 0
    num_failed: int = 0
    num_tokens: int = 0

    def since(self, before: Counts) -> Counts:
        """Return what was added since `before`."""
        return Counts(
            self.num_ok - before.num_ok,
            self.num_failed - before.num_failed,
            self.num_tokens - before.num_tokens,
        )


def counts_on(metrics_url: str) -> Counts:
    """Read the server's counts from its metrics page."""
    page = urllib3.request("GET", metrics_url).data.decode()
    num_ok = num_failed = num_tokens = 0
    for sample in samples_on(page):
        if sample.name == "specdec_generation_tokens_total":
            num_tokens += int(sample.value)
        elif sample.name == "specdec_requests_total" and sample.labels["outcome"] == "ok":
            num_ok += int(sample.value)
        elif sample.name == "specdec_requests_total":
            num_failed += int(sample.value)
    return Counts(num_ok, num_failed, num_tokens)


def read_aiperf(folder: Path) -> Figures:
    """Read AIPerf's summary."""
    report = _json(folder / "profile_export_aiperf.json")

    def average(name: str) -> float:
        return float(report[name]["avg"])

    has_drafted = "spec_decode_overall_draft_acceptance_rate" in report
    return Figures(
        num_requests=int(average("request_count")),
        num_errors=sum(each["count"] for each in report["error_summary"]),
        num_tokens=int(average("total_osl")),
        tokens_per_s=average("output_token_throughput"),
        ttft_ms=average("time_to_first_token"),
        itl_ms=average("inter_token_latency"),
        acceptance=average("spec_decode_overall_draft_acceptance_rate") / 100
        if has_drafted
        else None,
    )


def read_guidellm(folder: Path) -> Figures:
    """Read GuideLLM's report, and add up the `metrics` that it keeps of each answer."""
    benchmark = _json(folder / "report.json")["benchmarks"][0]
    metrics, requests = benchmark["metrics"], benchmark["requests"]["successful"]
    drafts = [each["response_metrics"]["speculative_decoding"] for each in requests]
    num_draft_tokens = sum(each["num_draft_tokens"] for each in drafts)
    num_accepted_tokens = sum(each["num_accepted_draft_tokens"] for each in drafts)
    totals = metrics["request_totals"]
    return Figures(
        num_requests=totals["successful"],
        num_errors=totals["errored"] + totals["incomplete"],
        num_tokens=int(metrics["output_token_count"]["successful"]["total_sum"]),
        tokens_per_s=metrics["output_tokens_per_second"]["successful"]["mean"],
        ttft_ms=metrics["time_to_first_token_ms"]["successful"]["mean"],
        itl_ms=metrics["inter_token_latency_ms"]["successful"]["mean"],
        acceptance=num_accepted_tokens / num_draft_tokens if num_draft_tokens else None,
    )


def read_genai_perf(folder: Path) -> Figures:
    """Read GenAI-Perf's summary; it counts no errors, because the first one ends it."""
    report = _json(next(folder.glob("*/profile_export_genai_perf.json")))

    def average(name: str) -> float:
        return float(report[name]["avg"])

    num_requests = int(average("request_count"))
    return Figures(
        num_requests=num_requests,
        num_errors=0,
        num_tokens=round(average("output_sequence_length") * num_requests),
        tokens_per_s=average("output_token_throughput"),
        ttft_ms=average("time_to_first_token"),
        itl_ms=average("inter_token_latency"),
    )


def read_vllm(folder: Path) -> Figures:
    """Read the result file of `vllm bench serve`."""
    result = _json(folder / "result.json")
    percent = result.get("spec_decode_acceptance_rate")
    return Figures(
        num_requests=result["completed"],
        num_errors=result["failed"],
        num_tokens=result["total_output_tokens"],
        tokens_per_s=result["output_throughput"],
        ttft_ms=result["mean_ttft_ms"],
        # Its "ITL" is the time between events; "TPOT" is what the others call ITL.
        itl_ms=result["mean_tpot_ms"],
        acceptance=None if percent is None else percent / 100,
    )


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes())
