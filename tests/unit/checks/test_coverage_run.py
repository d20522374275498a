"""The command that measures coverage: which tests it leaves out, and where it saves."""

import os
import subprocess
import sys

import pytest

from tests.checks import coverage, model_coverage


def test_tests_left_out_exist():
    """A renamed server test would be measured again, and its limits of time might fail."""
    for name in coverage.TIMED:
        assert (coverage.ROOT / f"tests/server/{name}").exists()


@pytest.mark.parametrize(
    ("program", "saves"), [(f"/opt/{model_coverage.STUB.decode()}", True), ("python", False)]
)
def test_only_model_processes_save_again_and_again(program, saves):
    """All other processes save at their end, so they need no thread for it."""
    # The process ends at once, because a thread that still imports can crash an ordinary end.
    code = (
        "import os, threading; import tests.checks.model_coverage; "
        "print([each.name for each in threading.enumerate()], flush=True); os._exit(0)"
    )
    ran = subprocess.run(
        [program, "-c", code],
        executable=sys.executable,
        cwd=coverage.ROOT,
        # Python looks for its environment beside `program`.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stderr == ""
    assert ("_save_again_and_again" in ran.stdout) == saves


def test_the_starter_is_removed(tmp_path, monkeypatch):
    """A file that would start our code in each Python process does not outlive the run."""
    monkeypatch.setattr(coverage, "STARTER", tmp_path / "starter.pth")
    with coverage._starter():
        assert str(coverage.ROOT) in coverage.STARTER.read_text()
    assert not coverage.STARTER.exists()
