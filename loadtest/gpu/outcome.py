"""The report of one step: facts as soon as they are known, and a verdict at its end.

The runner starts every step in a process of its own and may stop it at its time limit. A step
therefore writes its file anew with every fact; what a stopped step had measured is kept.
"""

from __future__ import annotations

import argparse
import enum
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any


class Verdict(enum.Enum):
    """How a step ended."""

    PASSED = "passed"
    """Everything ran, and every goal is met."""
    MISSED = "missed"
    """Everything ran, and a goal is missed; the figure says which."""
    FAILED = "failed"
    """Something raised, or an answer was wrong."""
    CUT = "cut"
    """The time was up; the facts hold what was measured until then."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """The options that the runner gives every step."""

    out: Path
    """The step's result file (JSON)."""
    seconds: float
    """The step's share of the time, from its start. It should end by itself before."""
    is_rehearsal: bool
    """Run the same code in miniature on a CPU."""
    started_s: float = field(default_factory=time.monotonic)
    """`time.monotonic()` when the step began."""

    @classmethod
    def parse(cls, argv: list[str] | None = None) -> StepOptions:
        """Read the command line of a step."""
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
        """Seconds left of the step's share; negative once it is used up."""
        return self.seconds - (time.monotonic() - self.started_s)


class StepReport:
    """The result file of one step, written anew with every fact."""

    def __init__(self, path: Path) -> None:
        """Start an empty report; it counts as cut until `finish` is called."""
        self._path = path
        self._facts: dict[str, Any] = {}
        self._write(Verdict.CUT, "")

    def add(self, name: str, value: Any) -> None:
        """Store a fact under `name` and write the file.

        It may hold dataclasses, mappings and sequences, however deep. Floats are kept to four
        significant digits.
        """
        self._facts[name] = _plain(value)
        self._write(Verdict.CUT, "")

    def finish(self, verdict: Verdict, figure: str) -> int:
        """Write the verdict and the figure of the summary's line; return the exit status."""
        self._write(verdict, figure)
        return 1 if verdict is Verdict.FAILED else 0

    def _write(self, verdict: Verdict, figure: str) -> None:
        text = json.dumps({"verdict": verdict.value, "figure": figure, "facts": self._facts})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(text + "\n", encoding="utf-8")
        new.replace(self._path)  # a reader, or a stop, never sees half a file


def _plain(value: Any) -> Any:
    """Turn a fact into what JSON can hold."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
