"""The report of one step: facts as soon as they are known, and a verdict at the end.

The runner starts every step in a process of its own and may stop it at its time limit. A step
therefore rewrites its file with every fact, so that a stopped step keeps what it has measured.
"""

from __future__ import annotations

import argparse
import enum
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specdec.loadtest.kit.results import NUM_DIGITS, plain


class Verdict(enum.Enum):
    """The way in which a step ended."""

    PASSED = "passed"
    """Everything ran, and every goal is met."""
    MISSED = "missed"
    """Everything ran, and a goal is missed; the figure says which."""
    FAILED = "failed"
    """Something raised, or an answer was wrong."""
    TIMED_OUT = "timed out"
    """The time limit ended it; the facts hold what was measured until then."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """The options that the runner gives to every step."""

    out: Path
    """The step's result file (JSON)."""
    seconds: float
    """Seconds for the step, from its start; it should end by itself before."""
    is_rehearsal: bool
    """True to run the same code in miniature on a CPU."""
    started_s: float = field(default_factory=time.monotonic)
    """`time.monotonic()` when the step began."""

    @classmethod
    def parse(cls, argv: list[str] | None = None) -> StepOptions:
        """Read a step's command line; without `argv`, that of this process."""
        parser = argparse.ArgumentParser()
        parser.add_argument("--out", type=Path, required=True, help="result file")
        parser.add_argument("--seconds", type=float, required=True, help="time limit")
        parser.add_argument("--rehearse", action="store_true", help="in miniature, on a CPU")
        arguments = parser.parse_args(argv)
        return cls(arguments.out, arguments.seconds, arguments.rehearse)

    @property
    def device(self) -> str:
        """The PyTorch device to run on: `cuda`, or `cpu` in a rehearsal."""
        return "cpu" if self.is_rehearsal else "cuda"

    @property
    def remaining_s(self) -> float:
        """Seconds left for the step; negative once the time is up."""
        return self.seconds - (time.monotonic() - self.started_s)


class StepReport:
    """The result file of one step, rewritten with every fact."""

    def __init__(self, path: Path) -> None:
        """Start an empty report, which has the verdict TIMED_OUT until `finish` is called."""
        self._path = path
        self._facts: dict[str, Any] = {}
        self._write(Verdict.TIMED_OUT, "")

    def add(self, name: str, value: Any) -> None:
        """Store a fact under `name` and write the file.

        A fact may nest dataclasses, mappings, lists and tuples. Floats are rounded to four
        significant digits.
        """
        self._facts[name] = plain(value, NUM_DIGITS)
        self._write(Verdict.TIMED_OUT, "")

    def finish(self, verdict: Verdict, figure: str) -> int:
        """Write the verdict and the figure for the summary's line; return the exit status.

        The status is 1 for FAILED, else 0.
        """
        self._write(verdict, figure)
        return 1 if verdict is Verdict.FAILED else 0

    def _write(self, verdict: Verdict, figure: str) -> None:
        text = json.dumps({"verdict": verdict.value, "figure": figure, "facts": self._facts})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(text + "\n", encoding="utf-8")
        # The rename makes sure that neither a reader nor a stop ever sees half a file.
        new.replace(self._path)
