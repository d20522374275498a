"""Tables of a profile's contents."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from specdec.builder.errors import BuildError
from specdec.builder.profiling.load import Choice
from specdec.builder.tables import table
from specdec.drafting.names import LOOKUP
from specdec.settings.orchestrator import OrchestratorSettings
from specdec.steering.choices import COPY, OFF_CHOICE, EstimatedDrafter
from specdec.steering.choices import Choice as Drafting
from specdec.steering.controller import Controller
from specdec.steering.settings import ControlSettings
from specdec.steering.state_file import StateFile
from specdec.steering.steps import Step

CONTEXT = 256
"""Tokens of context at which times are given."""


def report(
    path: Path, settings: OrchestratorSettings, choices: Sequence[Choice], loads: Sequence[int]
) -> str:
    """Return tables of milliseconds by load, and of acceptance by drafter.

    Raises BuildError if too few rounds were timed, and StateFileMismatchError for a file that is
    not a profile.
    """
    controller, now_s = Controller(ControlSettings()), time.time()
    measured = StateFile.as_written(path).read(now_s)
    if measured is None:
        raise BuildError(f"there is no {path}")
    controller.take(measured.acceptance, measured.costs)
    costs, acceptance = controller.costs, controller.acceptance
    if not costs.is_known:
        raise BuildError("too few rounds were timed: ask for longer answers (--max-tokens)")
    others = (each for each in choices if each.drafter not in (None, LOOKUP))
    drafts = [Drafting(str(each.drafter), each.num_draft_tokens or 0) for each in others]
    idle = sorted({each.drafter for each in drafts if not costs.is_timed(each.drafter)})

    def times(choice: Drafting, num_rows: int) -> list[str]:
        """Return the milliseconds of a round with `num_rows` rows for each request, by load."""
        alone = [Step(choice, load, 0, 0, CONTEXT) for load in loads]
        return [_ms(costs.predict(each.with_drafter(choice, num_rows), now_s)[0]) for each in alone]

    rows = [
        ["milliseconds, streams:", *map(str, loads)],
        ["a plain step", *times(OFF_CHOICE, 1)],
        ["a round without draft tokens", *times(Drafting(COPY), 1)],
        ["a round with one free draft token", *times(Drafting(COPY), 2)],
        *(
            [
                f"a round with {each.num_tokens} draft tokens of {each.drafter}",
                *times(each, 1 + each.num_tokens),
            ]
            for each in drafts
            if each.drafter not in idle
        ),
    ]
    names = settings.drafters.names
    known = [(name, *acceptance.alpha("", EstimatedDrafter(name))) for name in names]
    alphas = [[name, f"{alpha:.2f}", f"{num:.0f}"] for name, alpha, num in known if num]
    notes = [f"{name} has drafted nothing: the server's log says why" for name in idle]
    return "\n".join([table(rows), "", table([["drafter", "α̂", "draft tokens"], *alphas]), *notes])


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"
