"""The records of steps: which ran, on which sources and which GPU, with their results."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from specdec.loadtest.gpu.identity import Identity
from specdec.loadtest.gpu.step_report import Verdict


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One run of one step."""

    step: str
    sources: str
    commit: str
    gpu: str
    finished_at: str
    """Time in UTC, ISO 8601."""
    seconds: float
    verdict: Verdict
    figure: str
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """True if the step ran to its end with correct answers."""
        return self.verdict in {Verdict.PASSED, Verdict.MISSED}


class StepRecords:
    """Records of runs, each once, in the order in which they finished."""

    def __init__(self, records: Iterable[StepRecord] = ()) -> None:
        self._records: dict[tuple[str, str, str], StepRecord] = {}
        for record in records:
            self.add(record)

    @classmethod
    def read(cls, *paths: Path) -> StepRecords:
        """Read and merge files of records; one that does not exist counts as empty."""
        found = cls()
        for path in paths:
            if path.is_file():
                for raw in json.loads(path.read_text("utf-8")):
                    found.add(StepRecord(**{**raw, "verdict": Verdict(raw["verdict"])}))
        return found

    @property
    def records(self) -> list[StepRecord]:
        return sorted(self._records.values(), key=lambda each: each.finished_at)

    def add(self, record: StepRecord) -> None:
        """Add a record; a second one with the same step, GPU and time is ignored."""
        self._records.setdefault((record.step, record.gpu, record.finished_at), record)

    def latest(self, step: str, identity: Identity) -> StepRecord | None:
        """Return the last run of a step on these sources and this GPU; None if there is none."""
        runs = [
            each
            for each in self.records
            if (each.step, each.sources, each.gpu) == (step, identity.sources, identity.gpu)
        ]
        return runs[-1] if runs else None

    def pruned(self) -> StepRecords:
        """Return the records without superseded runs.

        For each step and GPU it keeps the last complete run and all runs after it.
        """
        kept: dict[tuple[str, str], list[StepRecord]] = {}
        for each in self.records:
            runs = kept.setdefault((each.step, each.gpu), [])
            if each.is_complete:
                runs.clear()
            runs.append(each)
        return StepRecords(each for runs in kept.values() for each in runs)

    def write(self, path: Path) -> None:
        """Write all records, one line each; no reader ever sees half a file."""
        lines = [
            json.dumps({**asdict(each), "verdict": each.verdict.value}) for each in self.records
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")
        new.replace(path)
