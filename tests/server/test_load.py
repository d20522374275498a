"""`specdec load` against the live server: figures, files, verdicts."""

import csv
import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.engines("torch")  # the load test, whatever answers

LEFT_BEHIND = {
    "requests.csv",
    "chunks.csv",
    "summary.json",
    "summary.md",
    "latency.png",
    "locust.html",
    "locust_stats.csv",
}


def load(out, url, *arguments):
    """Run the command with small answers."""
    command = [sys.executable, "-m", "loadtest.cli", "--out", str(out), "--url", url]
    return subprocess.run(
        [*command, "--max-tokens", "16", *arguments], capture_output=True, text=True, timeout=240
    )


def rows(path):
    """Return a CSV file's rows."""
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_every_answer_is_complete_and_nobody_elses(server, tmp_path, protocol):
    """Users side by side each get the plain target's answer, token for token."""
    url = server.grpc_url if protocol == "grpc" else f"http://{server.http_url}"

    result = load(
        tmp_path, url, "--protocol", protocol, "--users", "4", "--requests", "12", "--verify"
    )

    assert result.returncode == 0, result.stderr
    assert {path.name for path in tmp_path.iterdir()} >= LEFT_BEHIND
    requests = rows(tmp_path / "requests.csv")
    assert [row["outcome"] for row in requests] == ["ok"] * 12
    num_tokens = sum(int(row["num_tokens"]) for row in rows(tmp_path / "chunks.csv"))
    assert num_tokens == sum(int(row["num_output_tokens"]) for row in requests) > 0
    summary = json.loads((tmp_path / "summary.json").read_text())["summary"]
    assert summary["num_ok"] == 12
    assert 0 < summary["ttft"]["p50_s"] <= summary["e2e"]["p50_s"]


def test_broken_limit_is_exit_code_1(server, tmp_path):
    """A limit that no server keeps fails the run and is named with limit and value."""
    result = load(tmp_path, server.grpc_url, "--requests", "3", "--max-p95-ttft-ms", "0.01")

    assert result.returncode == 1
    assert "BROKEN max_p95_ttft_ms: limit 0.01, value" in result.stderr


def test_open_load_starts_on_time(server, tmp_path):
    """Poisson arrivals wait for no answer; how late any start was is in the report."""
    result = load(
        tmp_path, server.grpc_url, "--arrivals", "poisson", "--rate", "4", "--duration", "4"
    )

    assert result.returncode == 0, result.stderr
    assert "Latest start:" in result.stdout
    assert len(rows(tmp_path / "requests.csv")) >= 4


def test_nobody_there_is_exit_code_1(tmp_path):
    """A load test without a server does not pass."""
    result = load(tmp_path, "127.0.0.1:1", "--requests", "2")

    assert result.returncode == 1
    assert "BROKEN min_complete_answers" in result.stderr
