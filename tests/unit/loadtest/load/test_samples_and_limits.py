"""Tests of the load test's arithmetic, limits and reports, without a server."""

import json
import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec.loadtest.load import measures
from specdec.loadtest.load.limits import Limits, find_violations
from specdec.loadtest.load.report import describe, write_report
from specdec.loadtest.load.samples import (
    ChunkSample,
    Recorder,
    RequestSample,
    Samples,
    read_samples,
)
from specdec.loadtest.load.settings import LoadSettings
from specdec.loadtest.load.summary import summarize

# One answer of 7 tokens in 3 chunks, the first after 0.5 s and the end after 2.0 s. It took three
# rounds of k = 4, with 3, 0 and 1 accepted tokens.
REQUEST = RequestSample(
    request_id="a",
    prompt_id="1",
    category="qa",
    start_s=1.0,
    lateness_s=0.0,
    ttft_s=0.5,
    e2e_s=2.0,
    num_input_tokens=10,
    num_output_tokens=7,
    num_chunks=3,
    num_draft_tokens=12,
    num_accepted_tokens=4,
    num_rounds=3,
    num_compared=7,
    acceptance_histogram=(1, 1, 0, 1, 0),
    finish_reason="stop",
    outcome="ok",
    detail="",
)
CHUNKS = (ChunkSample("a", 0.5, 4), ChunkSample("a", 1.0, 1), ChunkSample("a", 1.8, 2))
FAILED = replace(REQUEST, request_id="b", outcome="overloaded", ttft_s=None, num_output_tokens=0)
SAMPLES = Samples((REQUEST, FAILED), CHUNKS)


@pytest.fixture
def settings(tmp_path):
    """Return the settings of a small load test."""
    return LoadSettings(
        out=tmp_path, num_requests=3, duration_s=10.0, request={"max_tokens": 5}, url="here:1"
    )


def test_latencies_by_hand():
    """TTFT, ITL, ICL and e2e follow their formulas: (2.0 - 0.5) / (7 - 1) s per token."""
    assert measures.time_to_first_token_s(REQUEST) == 0.5
    assert measures.inter_token_latency_s(REQUEST) == pytest.approx(0.25)
    assert measures.inter_chunk_latencies_s(CHUNKS) == pytest.approx([0.5, 0.8])
    assert measures.end_to_end_s(REQUEST) == 2.0
    assert measures.tokens_per_chunk([REQUEST]) == pytest.approx(7 / 3)


def test_gaps_are_never_taken_across_requests():
    """The gap between chunks is measured within each request, also if requests run side by side."""
    chunks = [ChunkSample("a", 0.1, 1), ChunkSample("b", 0.2, 1), ChunkSample("a", 0.4, 1)]

    assert measures.inter_chunk_latencies_s(chunks) == pytest.approx([0.3])


def test_one_token_has_no_inter_token_latency():
    """A single token has no inter-token latency, and neither has an answer that never began."""
    assert measures.inter_token_latency_s(replace(REQUEST, num_output_tokens=1)) is None
    assert measures.inter_token_latency_s(FAILED) is None


def test_acceptance_by_hand():
    """4 of 12 drafted; α̂ = 4 / (min(4,4) + min(1,4) + min(2,4)); k = 12 / 3; τ = 1 + 4 / 3."""
    assert measures.acceptance_rate([REQUEST]) == pytest.approx(4 / 12)
    assert measures.conditional_acceptance([REQUEST]) == pytest.approx(4 / 7)
    assert measures.mean_acceptance_length([REQUEST]) == pytest.approx(1 + 4 / 3)
    assert measures.mean_draft_length([REQUEST]) == 4


def test_without_speculation_there_is_no_acceptance():
    """Without draft tokens the acceptance figures are None, not 0."""
    plain = replace(
        REQUEST, num_draft_tokens=0, num_accepted_tokens=0, num_rounds=0, num_compared=None
    )

    assert measures.acceptance_rate([plain]) is None
    assert measures.conditional_acceptance([plain]) is None
    assert measures.mean_acceptance_length([plain]) is None
    assert measures.mean_draft_length([plain]) is None


def test_throughput_counts_tokens_inside_the_window():
    """Tokens count by their time of arrival, those of failed requests included."""
    window = measures.Window(start_s=1.75, end_s=2.75)  # contains only the chunk at 1.0 + 1.0

    assert measures.output_tokens_per_s(SAMPLES, window) == pytest.approx(1.0)
    assert measures.requests_per_s([REQUEST], measures.Window(0.0, 4.0)) == pytest.approx(0.25)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2), st.integers(1, 99))
def test_quantiles_are_those_of_the_standard_library(values, percent):
    """Quantiles interpolate linearly at (n - 1) · fraction, on raw values."""
    expected = statistics.quantiles(values, n=100, method="inclusive")[percent - 1]

    assert measures.quantile(values, percent / 100) == pytest.approx(expected, abs=1e-6)


def test_quantile_of_nothing_is_an_error():
    """An empty sample has no quantile, and its distribution is None."""
    with pytest.raises(ValueError, match="no quantile"):
        measures.quantile([], 0.5)
    assert measures.distribution([]) is None


def test_summary_takes_latencies_of_complete_answers_only():
    """A refusal is quick and must not count as a fast answer."""
    summary = summarize(SAMPLES, warmup_s=0.0, duration_s=None)

    assert (summary.num_requests, summary.num_ok, summary.fail_ratio) == (2, 1, 0.5)
    assert summary.e2e.num_samples == 1
    assert summary.outcomes == {"ok": 1, "overloaded": 1}
    assert (summary.window.start_s, summary.window.end_s) == (1.0, 3.0)
    assert summary.tokens_per_s == pytest.approx(7 / 2)
    assert summary.categories["qa"].num_ok == 1


def test_warmup_is_left_out():
    """Requests that started during the warm-up are in no figure."""
    summary = summarize(SAMPLES, warmup_s=1.5, duration_s=None)

    assert summary.num_requests == 0
    assert summary.ttft is None


LIMITS_THAT_BREAK = {
    "max_p95_ttft_ms": 499,
    "max_p95_itl_ms": 249,
    "max_p95_icl_ms": 700,
    "max_p95_e2e_ms": 1999,
    "min_tokens_per_s": 3.6,
    "min_acceptance": 0.34,
    "max_fail_ratio": 0.49,
}
LIMITS_THAT_HOLD = {
    "max_p95_ttft_ms": 501,
    "max_p95_itl_ms": 251,
    "max_p95_icl_ms": 801,
    "max_p95_e2e_ms": 2001,
    "min_tokens_per_s": 3.4,
    "min_acceptance": 0.33,
    "max_fail_ratio": 0.5,
}


@pytest.mark.parametrize("name", LIMITS_THAT_BREAK)
def test_each_limit_checks_its_own_figure(name):
    """Each limit breaks and holds at the right value, in the right direction and unit."""
    summary = summarize(SAMPLES, 0.0, None)
    none = Limits(max_fail_ratio=None)

    (violation,) = find_violations(summary, replace(none, **{name: LIMITS_THAT_BREAK[name]}))

    assert violation.name == name
    assert name in str(violation)
    assert not find_violations(summary, replace(none, **{name: LIMITS_THAT_HOLD[name]}))


def test_any_failure_breaks_the_default_limits():
    """If the user sets no limits, one failed request fails the test."""
    (violation,) = find_violations(summarize(SAMPLES, 0.0, None), Limits())

    assert violation.name == "max_fail_ratio"


def test_limits_without_answers_are_broken():
    """No complete answer, or no figure to compare, counts as a broken limit."""
    nothing = summarize(Samples((), ()), 0.0, None)

    names = {item.name for item in find_violations(nothing, Limits(max_p95_ttft_ms=1000))}

    assert names == {"min_complete_answers", "max_p95_ttft_ms", "max_fail_ratio"}
    nan = replace(summarize(SAMPLES, 0.0, None), tokens_per_s=math.nan)
    (violation,) = find_violations(nan, Limits(min_tokens_per_s=1, max_fail_ratio=1))
    assert violation.name == "min_tokens_per_s"


def test_samples_survive_the_disk(tmp_path):
    """Samples are read back as they were recorded, missing values included."""
    recorder = Recorder(tmp_path)
    recorder.add(REQUEST, CHUNKS)
    failed = replace(FAILED, detail='a "quoted", text\nof two lines', num_input_tokens=None)
    recorder.add(failed, ())
    recorder.close()

    samples = read_samples(tmp_path)

    assert samples.requests == (REQUEST, failed)
    assert samples.chunks == CHUNKS


def test_report_holds_figures_conditions_and_verdict(settings):
    """The files have settings, figures and broken limits, and the picture is drawn."""
    summary = summarize(SAMPLES, 0.0, None)
    violations = find_violations(summary, Limits())

    text = write_report(settings, SAMPLES, summary, violations)

    facts = json.loads((settings.out / "summary.json").read_text())
    assert facts["summary"]["ttft"]["p95_s"] == 0.5
    assert facts["settings"]["request"] == {"max_tokens": 5}
    assert facts["violations"][0]["name"] == "max_fail_ratio"
    assert text == (settings.out / "summary.md").read_text()
    assert "| inter-token latency (ms) | 1 | 250.0 |" in text
    assert "BROKEN max_fail_ratio: limit 0, value 0.5" in text
    assert (settings.out / "latency.png").read_bytes().startswith(b"\x89PNG")


def test_report_without_answers_is_written(settings):
    """A test without any answer writes its files all the same."""
    samples = Samples((), ())

    text = write_report(settings, samples, summarize(samples, 0.0, None), [])

    assert "0 answered in full" in text
    poisson = replace(settings, arrivals="poisson", rate_per_s=2.5)
    assert "Poisson arrivals, 2.5 per s" in describe(poisson, summarize(samples, 0.0, None), [])
