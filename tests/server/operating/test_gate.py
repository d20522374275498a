"""The limits of a load test detect a server that has become slower."""

import subprocess
import sys

import pytest

from specdec.builder.repository.colocate import colocate
from specdec.launch.triton_server import TritonServer
from specdec.serving.answer import ROUND_DELAY_VARIABLE
from tests.server.support.live import MODEL_REPOSITORY

DELAY_MS = 200
ATTEMPTS = 3


def gate(url, out):
    """Run a load test whose limit for the time between chunks equals the injected delay.

    A round of the default pair takes less.
    """
    options = ["--requests", "3", "--max-tokens", "12", "--max-p95-icl-ms", str(DELAY_MS)]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "specdec.loadtest.load.cli",
            "--url",
            url,
            "--out",
            str(out),
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_injected_delay_breaks_the_limit(tmp_path, monkeypatch):
    """With 200 ms more per round the load test exits with 1 and names the broken limit."""
    monkeypatch.setenv(ROUND_DELAY_VARIABLE, str(DELAY_MS))

    # One process starts sooner than three.
    colocate(MODEL_REPOSITORY, tmp_path / "repository")
    with TritonServer(tmp_path / "repository") as slow:
        result = gate(slow.grpc_url, tmp_path)

    assert result.returncode == 1
    assert "BROKEN max_p95_icl_ms: limit 200, value" in result.stderr


def test_without_the_delay_the_same_limit_is_kept(server, tmp_path):
    """A healthy server keeps the limit, on a noisy machine in one of three attempts."""
    for attempt in range(ATTEMPTS):
        result = gate(server.grpc_url, tmp_path / str(attempt))
        if result.returncode == 0:
            return
    pytest.fail(result.stderr)
