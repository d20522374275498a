"""Tests of the command `specdec bench`: its benches, and how it fails."""

import importlib
import os
import signal
import time

import pytest

from specdec.clients.errors import SpecdecError
from specdec.errors import ConfigurationError
from specdec.launch.installation import LaunchError
from specdec.loadtest.lab import benches
from specdec.loadtest.lab.benches import BENCHES
from specdec.loadtest.lab.speed import acceptance


def test_refusal_by_the_server_is_one_line_without_a_traceback(monkeypatch, capsys):
    """The line has the server's own words, and the exit status is 1."""

    def refused(argv):
        raise SpecdecError("num_draft_tokens must be at most 16", error_type="invalid_request")

    monkeypatch.setattr(acceptance, "main", refused)
    assert benches.main(["acceptance", "--arms", "eagle3_tree:24"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("specdec bench acceptance: invalid_request: num_draft_tokens must")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [LaunchError("no model in x"), ConfigurationError("no config.json"), FileNotFoundError("x")],
)
def test_server_or_file_that_is_missing_is_one_line(monkeypatch, capsys, error):
    """Neither a server that does not start nor a missing file is a traceback."""

    def fail(argv):
        raise error

    monkeypatch.setattr(acceptance, "main", fail)
    assert benches.main(["acceptance"]) == 1
    assert capsys.readouterr().err == f"specdec bench acceptance: {error}\n"


@pytest.mark.parametrize("bench", ["speed", "exact", "counters"])
def test_bad_file_of_prompts_is_a_usage_error(bench, tmp_path, capsys):
    """The error names the option and the file."""
    with pytest.raises(SystemExit) as exit_request:
        benches.main([bench, "--prompts", str(tmp_path / "none.jsonl")])

    assert exit_request.value.code == 2
    assert "argument --prompts: " in (text := capsys.readouterr().err)
    assert "none.jsonl" in text


@pytest.mark.parametrize(
    "words",
    [
        ["speed", "--context", "2000", "--learning", "12"],
        ["exact", "--draft", "small", "checkpoint", "--grpc-url", "localhost:1"],
        ["classify", "--model-repository", "models"],
        ["replay", "--model-repository", "models"],
        ["record", "--out", "folder"],
        ["record", "--name", "x"],
    ],
)
def test_option_that_would_be_ignored_is_a_usage_error(words, capsys):
    """The error names the option."""
    with pytest.raises(SystemExit) as exit_request:
        benches.main(words)

    assert exit_request.value.code == 2
    assert words[-2] in capsys.readouterr().err


def test_help_has_a_line_for_each_bench(capsys):
    """Each line has the bench's name and what it measures."""
    assert benches.main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[0] for line in lines] == list(BENCHES)
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_has_help(name, capsys):
    """`specdec bench NAME --help` names the bench and exits with status 0."""
    module = importlib.import_module(f"specdec.loadtest.{BENCHES[name].module}")

    with pytest.raises(SystemExit) as exit_request:
        module.main(["--help"])

    assert exit_request.value.code == 0
    assert f"specdec bench {name}" in capsys.readouterr().out


def test_unknown_bench_is_a_usage_error(capsys):
    """The exit status is 2, and the error names the bench."""
    assert benches.main(["other"]) == 2
    assert "unknown bench 'other'" in capsys.readouterr().err


def test_terminated_bench_stops_its_servers(monkeypatch):
    """SIGTERM ends a bench by way of its `finally` blocks, and the handler goes with it."""
    stopped = []

    def run(_arguments):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        finally:
            stopped.append(True)

    monkeypatch.setattr(acceptance, "main", run)
    with pytest.raises(SystemExit) as caught:
        benches.main(["acceptance"])
    assert caught.value.code == 128 + signal.SIGTERM
    assert stopped
    assert signal.getsignal(signal.SIGTERM) is not benches._stop
