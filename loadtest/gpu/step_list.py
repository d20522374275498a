"""The steps, most valuable first, with the seconds that each may take.

If the time is short, the runner leaves out steps from the end of this list. The last step that
still fits gets the rest of the time. A step that needs the archive waits until all parts of it have
arrived.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a GPU run, a module in `specdec.loadtest.gpu.steps`."""

    name: str
    seconds: float
    """Time limit on a GPU, in seconds."""
    least_seconds: float
    """Seconds below which the step is not worth starting."""
    rehearsal_seconds: float
    """Time limit in a rehearsal on two cores, in seconds."""
    needs_archive: bool = False
    """True to run in the serving environment; other steps run in the machine's own Python."""
    needs_vllm: bool = False
    """True to run only if vLLM is in the archive."""
    is_quick: bool = False
    """True for the part of the rehearsal that continuous integration runs."""


STEPS = (
    Step("device_tests", 120, 40, 60, is_quick=True),
    Step("served_exact", 140, 80, 90, needs_archive=True),
    Step("served_load", 140, 90, 75, needs_archive=True),
    Step("served_inside", 480, 240, 400, needs_archive=True, needs_vllm=True),
    Step("engine_limits", 150, 50, 40, is_quick=True),
    Step("exact_rows", 60, 25, 25, is_quick=True),
    Step("cores", 100, 60, 90, needs_archive=True),
    Step("training", 360, 100, 75, needs_archive=True),
)
