"""Merge the results from the GPU machine into those of the repository."""

from __future__ import annotations

from pathlib import Path

from specdec.folders import default_results
from specdec.loadtest.gpu.running import RECORDS
from specdec.loadtest.gpu.step_records import StepRecords

RESULTS = default_results() / "gpu"


def collect(returned: Path, results: Path = RESULTS) -> StepRecords:
    """Merge the records in `returned` into those in `results` and return them.

    Raises FileNotFoundError if `returned` has none.
    """
    if not (returned / RECORDS).is_file():
        raise FileNotFoundError(f"{returned} holds no {RECORDS}")
    merged = StepRecords.read(results / RECORDS, returned / RECORDS).pruned()
    merged.write(results / RECORDS)
    return merged
