"""The steps, most valuable first, with the minutes that each may take.

Where the time is short, the runner leaves out steps from the end of this list and gives the last
one that fits what remains. A step that needs the pieces waits until all of them have arrived.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the programme, a module in `loadtest.gpu.steps`."""

    name: str
    seconds: float
    """Time limit on a GPU."""
    least_seconds: float
    """With less time than this it is not worth starting."""
    rehearsal_seconds: float
    """Time limit in a rehearsal, on two cores."""
    needs_pieces: bool = False
    """Runs in the serving environment; the others take the machine's own Python."""
    is_quick: bool = False
    """Belongs to the part of the rehearsal that continuous integration runs."""


PROGRAMME = (
    Step("device_tests", 120, 40, 60, is_quick=True),
    Step("served_exact", 140, 80, 90, needs_pieces=True),
    Step("served_load", 140, 90, 75, needs_pieces=True),
    Step("engine_limits", 150, 50, 40, is_quick=True),
    Step("exact_rows", 60, 25, 25, is_quick=True),
    Step("hop", 45, 25, 40, needs_pieces=True),
    Step("cores", 100, 60, 90, needs_pieces=True),
    Step("training", 360, 100, 75, needs_pieces=True),
)
