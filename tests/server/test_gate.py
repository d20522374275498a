"""A load-test gate sees a server that has become slower."""

import subprocess
import sys

import pytest

from specdec.serving.answer import ROUND_DELAY_VARIABLE
from specdec.serving.launcher import TritonServer

pytestmark = pytest.mark.engines("torch")  # the load test, whatever answers

DELAY_MS = 200
ATTEMPTS = 3


def gate(url, out):
    """Run a load test whose limit lies below the delay and above a round of the default pair."""
    options = ["--requests", "3", "--max-tokens", "12", "--max-p95-icl-ms", str(DELAY_MS)]
    return subprocess.run(
        [sys.executable, "-m", "loadtest.cli", "--url", url, "--out", str(out), *options],
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_injected_delay_breaks_the_gate(tmp_path, monkeypatch):
    """200 ms more per round: exit code 1, and the broken limit is named."""
    monkeypatch.setenv(ROUND_DELAY_VARIABLE, str(DELAY_MS))

    with TritonServer() as slow:
        result = gate(slow.grpc_url, tmp_path)

    assert result.returncode == 1
    assert "BROKEN max_p95_icl_ms: limit 200, value" in result.stderr


def test_without_the_delay_the_same_gate_passes(server, tmp_path):
    """The limit is one that the healthy server keeps (a noisy machine gets three attempts)."""
    for attempt in range(ATTEMPTS):
        result = gate(server.grpc_url, tmp_path / str(attempt))
        if result.returncode == 0:
            return
    pytest.fail(result.stderr)
