"""The report of a load test: summary.json, summary.md and latency.png."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from specdec.loadtest.load.plot import plot_latencies
from specdec.loadtest.load.summary import latency_samples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specdec.loadtest.load.limits import Violation
    from specdec.loadtest.load.measures import Distribution
    from specdec.loadtest.load.samples import Samples
    from specdec.loadtest.load.settings import LoadSettings
    from specdec.loadtest.load.summary import Summary

_LATENCIES = {
    "ttft": "time to first token (ms)",
    "itl": "inter-token latency (ms)",
    "icl": "inter-chunk latency (ms)",
    "e2e": "end to end (ms)",
}


def write_report(
    settings: LoadSettings, samples: Samples, summary: Summary, violations: Sequence[Violation]
) -> str:
    """Write the three files into the test's folder and return the text of summary.md."""
    facts: dict[str, Any] = {
        "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "client_machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "settings": settings.as_json(),
        "summary": asdict(summary),
        "violations": [asdict(violation) for violation in violations],
    }
    json_text = json.dumps(facts, indent=1, ensure_ascii=False)
    (settings.out / "summary.json").write_text(json_text + "\n", encoding="utf-8")
    text = describe(settings, summary, violations)
    (settings.out / "summary.md").write_text(text, encoding="utf-8")
    plot_latencies(
        latency_samples(samples, summary.window),
        describe_load(settings),
        settings.out / "latency.png",
    )
    return text


def describe_load(settings: LoadSettings) -> str:
    """Describe the load in one line."""
    if settings.rate_per_s is None:
        users = f"{settings.users} user{'s' if settings.users > 1 else ''}"
    else:
        users = f"Poisson arrivals, {settings.rate_per_s:g} per s"
    parts = ", ".join(f"{name} {value}" for name, value in settings.request.items())
    transport = "gRPC stream" if settings.protocol == "grpc" else "HTTP generate_stream"
    return f"{transport}, {users}{', ' + parts if parts else ''}"


def describe(settings: LoadSettings, summary: Summary, violations: Sequence[Violation]) -> str:
    """Return the figures as Markdown."""
    window = summary.window
    lines = [
        "# Load test",
        "",
        (
            f"{describe_load(settings)}; prompts {settings.prompts.name}"
            f"{', salted' if settings.is_salted else ''}"
            f"{', every answer compared with the plain target' if settings.is_verified else ''}."
        ),
        "",
        (
            f"Measured from {window.start_s:.1f} s to {window.end_s:.1f} s: "
            f"{summary.num_requests} requests, {summary.num_ok} answered in full, "
            f"{summary.num_output_tokens} tokens."
        ),
        "",
        "| tokens/s | requests/s | tokens per chunk | acceptance | α̂ | k, mean | τ |",
        "|---|---|---|---|---|---|---|",
        (
            f"| {_number(summary.tokens_per_s, 1)} | {_number(summary.requests_per_s)} "
            f"| {_number(summary.tokens_per_chunk)} | {_number(summary.acceptance_rate)} "
            f"| {_number(summary.conditional_acceptance)} | {_number(summary.mean_draft_length)} "
            f"| {_number(summary.mean_acceptance_length)} |"
        ),
        "",
        "| | n | mean | p50 | p95 | p99 | max |",
        "|---|---|---|---|---|---|---|",
        *(_latency_row(name, getattr(summary, key)) for key, name in _LATENCIES.items()),
        "",
        "| category | answers | TTFT p50 (ms) | ITL p50 (ms) | acceptance | τ |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {part.num_ok} | {_ms(part.ttft_p50_s)} | {_ms(part.itl_p50_s)} "
            f"| {_number(part.acceptance_rate)} | {_number(part.mean_acceptance_length)} |"
            for name, part in summary.categories.items()
        ),
        "",
        "Outcomes: "
        + (", ".join(f"{name} {count}" for name, count in summary.outcomes.items()) or "none")
        + ".",
    ]
    if settings.rate_per_s is not None:
        lines.append(f"Latest start: {summary.max_lateness_s * 1000:.0f} ms later than due.")
    lines += ["", *(f"BROKEN {violation}" for violation in violations)]
    return "\n".join(lines).rstrip() + "\n"


def _latency_row(name: str, values: Distribution | None) -> str:
    if values is None:
        return f"| {name} | 0 | – | – | – | – | – |"
    cells = (values.mean_s, values.p50_s, values.p95_s, values.p99_s, values.max_s)
    return f"| {name} | {values.num_samples} | " + " | ".join(map(_ms, cells)) + " |"


def _ms(value_s: float | None) -> str:
    return _number(None if value_s is None else value_s * 1000, 1)


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
