"""Run the steps that have no complete record, each in a process of its own with a time limit."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from specdec.folders import CHECKOUT
from specdec.loadtest.gpu.folders import GpuFolders
from specdec.loadtest.gpu.identity import Identity
from specdec.loadtest.gpu.step_list import Step
from specdec.loadtest.gpu.step_records import StepRecord, StepRecords
from specdec.loadtest.gpu.step_report import Verdict
from specdec.loadtest.gpu.unpacking import is_set_up, serving_environment

RECORDS = "steps.json"
SUMMARY = "summary.md"
LOG = "log.txt"
_GRACE_S = 8.0
"""Seconds after its limit in which a step may still end by itself."""
_SIGTERM_S = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The settings of one run, from the command line."""

    out: Path
    """Folder of the results, which are to be brought back."""
    seconds: float
    """Seconds for all steps together, from now."""
    is_rehearsal: bool


class Runner:
    """Runs steps and keeps their records in `out`, with a copy at `folders.records`."""

    def __init__(
        self, options: RunOptions, folders: GpuFolders, identity: Identity, known: StepRecords
    ) -> None:
        """Prepare a run; `known` holds the records of earlier runs."""
        self._options, self._folders, self._identity = options, folders, identity
        self._records = known
        self._deadline_s = time.monotonic() + options.seconds
        self._notes: dict[str, str] = {}
        options.out.mkdir(parents=True, exist_ok=True)

    def run(self, steps: Sequence[Step]) -> bool:
        """Run the steps without a complete record; return whether every step is complete.

        Steps that never ran come first, then those that timed out, then those that failed.
        """
        self._record_stopped_steps(steps)
        for step in sorted(steps, key=self._priority):
            record = self._records.latest(step.name, self._identity)
            if record is not None and record.is_complete:
                continue
            left_s = self._deadline_s - time.monotonic()
            if step.needs_archive and not is_set_up(self._folders):
                self._notes[step.name] = "waits for the archive"
            elif left_s < (0.0 if self._options.is_rehearsal else step.least_seconds):
                self._notes[step.name] = f"needs {step.least_seconds:g} s, {left_s:.0f} s are left"
            else:
                self._run_step(step, min(self._limit_of(step), left_s))
        text = self._summary(steps)
        (self._options.out / SUMMARY).write_text(text, "utf-8")
        print(text)
        latest = [self._records.latest(step.name, self._identity) for step in steps]
        return all(each is not None and each.is_complete for each in latest)

    def _priority(self, step: Step) -> int:
        record = self._records.latest(step.name, self._identity)
        if record is None:
            return 0
        return 1 if record.verdict is Verdict.TIMED_OUT else 2

    def _limit_of(self, step: Step) -> float:
        return step.rehearsal_seconds if self._options.is_rehearsal else step.seconds

    def _run_step(self, step: Step, limit_s: float) -> None:
        out = self._options.out / f"{step.name}.json"
        python = str(self._folders.python) if step.needs_archive else sys.executable
        command = [python, "-m", f"specdec.loadtest.gpu.steps.{step.name}"]
        command += ["--out", str(out), "--seconds", f"{limit_s:.0f}"]
        command += ["--rehearse"] if self._options.is_rehearsal else []
        print(f"{step.name}: at most {limit_s:.0f} s", flush=True)
        start_s = time.monotonic()
        with (self._options.out / LOG).open("ab") as log:
            log.write(f"\n== {step.name}\n".encode())
            log.flush()
            process = subprocess.Popen(
                command,
                cwd=CHECKOUT,
                env=self._environment(step),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  this process has one thread
            )
            with _interrupted_by_sigterm():
                try:
                    status = process.wait(limit_s + _GRACE_S)
                except subprocess.TimeoutExpired:
                    status = None
                finally:
                    _end(process)
                    self._record(step, time.monotonic() - start_s)
        record = self._records.latest(step.name, self._identity)
        if record is not None:
            print(f"  {record.verdict.value} in {record.seconds:.0f} s: {record.figure}")
        if status not in {0, None}:
            print(f"  exit status {status}; see {self._options.out / LOG}", flush=True)

    def _environment(self, step: Step) -> dict[str, str]:
        environment = serving_environment(self._folders)
        if not step.needs_archive:
            paths = [str(CHECKOUT / "backends" / "python")]
            paths += filter(None, [environment.get("PYTHONPATH")])
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        return environment

    def _record_stopped_steps(self, steps: Sequence[Step]) -> None:
        """Record what steps had measured when an earlier run was killed."""
        for step in steps:
            if (self._options.out / f"{step.name}.json").is_file():
                self._record(step, 0.0)

    def _record(self, step: Step, seconds: float) -> None:
        """Move a step's own file into the records."""
        path = self._options.out / f"{step.name}.json"
        found: dict[str, Any] = {
            "verdict": Verdict.FAILED.value,
            "figure": "no result",
            "facts": {},
        }
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(path.read_text("utf-8"))
        self._records.add(
            StepRecord(
                step=step.name,
                sources=self._identity.sources,
                commit=self._identity.commit,
                gpu=self._identity.gpu,
                finished_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
                seconds=round(seconds, 1),
                verdict=Verdict(found["verdict"]),
                figure=found["figure"],
                facts=found["facts"],
            )
        )
        self._records.write(self._options.out / RECORDS)
        self._records.write(self._folders.records)
        path.unlink(missing_ok=True)

    def _summary(self, steps: Sequence[Step]) -> str:
        lines = ["| step | seconds | verdict | figure |", "|---|---|---|---|"]
        for step in steps:
            record = self._records.latest(step.name, self._identity)
            note = self._notes.get(step.name, "")
            if record is None:
                lines.append(f"| {step.name} | – | not run | {note} |")
            else:
                figure = " ".join(filter(None, [record.figure, note]))
                row = [step.name, f"{record.seconds:.0f}", record.verdict.value, figure]
                lines.append(f"| {' | '.join(row)} |")
        known = self._identity
        return "\n".join([*lines, "", f"{known.gpu}; commit {known.commit} ({known.sources})"])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a step and everything that it started in its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SIGTERM_S)
            return


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt, so that the step's result is still recorded."""

    def interrupt(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
