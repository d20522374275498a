"""Measures which lines of specdec the tests run, those in tritonserver's model processes too.

python -m tests.checks.coverage                      # all tests whose limits of time allow it
python -m tests.checks.coverage tests/unit/drafting  # some tests

The exit code is not 0 if a test fails or the share is below `fail_under` in pyproject.toml.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "build/coverage/data"
STARTER = Path(sysconfig.get_path("purelib")) / "specdec_coverage.pth"
"""File that Python reads at its start, in Triton's model processes too, which ignore PYTHONPATH."""
TIMED = (
    "answers/test_cancel.py",
    "commands/test_load.py",
    "engines/test_llmapi.py",
    "operating/test_gate.py",
    "operating/test_overload.py",
    "operating/test_profile.py",
    "operating/test_supervisor.py",
    "operating/test_unsupervised.py",
)
"""Files in `tests/server` that compare times, which measuring lengthens."""


def main(arguments: list[str]) -> int:
    """Run pytest with `arguments` under coverage, and report; return the exit code."""
    left_out = [f"--ignore=tests/server/{each}" for each in TIMED]
    chosen = arguments or ["tests/unit", "tests/contract", "tests/server", *left_out]
    shutil.rmtree(DATA.parent, ignore_errors=True)
    DATA.parent.mkdir(parents=True)
    with _starter():
        tested = _coverage("run", "-m", "pytest", "-m", "not gpu and not vllm", *chosen)
    _coverage("combine", "--quiet")
    return _coverage("report") or tested


@contextmanager
def _starter() -> Iterator[None]:
    STARTER.write_text(f"{ROOT}\nimport tests.checks.model_coverage\n", "utf-8")
    try:
        yield
    finally:
        STARTER.unlink()


def _coverage(*arguments: str) -> int:
    environment = os.environ | {"COVERAGE_FILE": str(DATA)}
    command = [sys.executable, "-m", "coverage", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
