"""`specdec load` measures a live server and writes its files; test_gate.py tests its limits."""

import csv
import json
import subprocess
import sys

import pytest

FILES = {
    "requests.csv",
    "chunks.csv",
    "summary.json",
    "summary.md",
    "latency.png",
    "locust.html",
    "locust_stats.csv",
}


def load(out, url, *arguments):
    """Run a load test with answers of at most 16 tokens; return the finished process."""
    command = [sys.executable, "-m", "specdec.loadtest.load.cli", "--out", str(out), "--url", url]
    return subprocess.run(
        [*command, "--max-tokens", "16", *arguments], capture_output=True, text=True, timeout=240
    )


def rows(path):
    """Return a CSV file's rows."""
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_answers_of_several_users_are_complete_and_not_mixed_up(server, tmp_path, protocol):
    """Each of four users at a time gets the target's own tokens, and the files have all figures."""
    url = server.grpc_url if protocol == "grpc" else f"http://{server.http_url}"

    result = load(
        tmp_path, url, "--protocol", protocol, "--users", "4", "--requests", "8", "--verify"
    )

    assert result.returncode == 0, result.stderr
    assert {path.name for path in tmp_path.iterdir()} >= FILES
    requests = rows(tmp_path / "requests.csv")
    assert [row["outcome"] for row in requests] == ["ok"] * 8
    num_tokens = sum(int(row["num_tokens"]) for row in rows(tmp_path / "chunks.csv"))
    assert num_tokens == sum(int(row["num_output_tokens"]) for row in requests) > 0
    summary = json.loads((tmp_path / "summary.json").read_text())["summary"]
    assert summary["num_ok"] == 8
    assert 0 < summary["ttft"]["p50_s"] <= summary["e2e"]["p50_s"]


def test_open_load_starts_requests_without_waiting_for_answers(server, tmp_path):
    """Requests arrive at the given rate, and the report says how late the latest one started."""
    result = load(
        tmp_path, server.grpc_url, "--arrivals", "poisson", "--rate", "4", "--duration", "4"
    )

    assert result.returncode == 0, result.stderr
    assert "Latest start:" in result.stdout
    assert len(rows(tmp_path / "requests.csv")) >= 4


def test_load_test_without_a_server_exits_with_1(tmp_path):
    """Without a complete answer, the limit `min_complete_answers` counts as broken."""
    result = load(tmp_path, "127.0.0.1:1", "--requests", "2")

    assert result.returncode == 1
    assert "BROKEN min_complete_answers" in result.stderr
