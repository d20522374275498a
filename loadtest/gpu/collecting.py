"""Merge what came back from the machine into the repository's results."""

from __future__ import annotations

from pathlib import Path

from specdec.folders import default_results
from specdec.loadtest.gpu.ledger import Ledger
from specdec.loadtest.gpu.running import LEDGER

RESULTS = default_results() / "gpu"


def collect(came_back: Path, results: Path = RESULTS) -> Ledger:
    """Merge the ledger in `came_back` into the one in `results` and return it.

    Raises FileNotFoundError if no ledger came back.
    """
    if not (came_back / LEDGER).is_file():
        raise FileNotFoundError(f"{came_back} holds no {LEDGER}")
    merged = Ledger.read(results / LEDGER, came_back / LEDGER).pruned()
    merged.write(results / LEDGER)
    return merged
