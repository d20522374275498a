"""Tables of a profile's contents."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from builder.errors import BuildError
from builder.profiling.load import Way
from builder.tables import table
from specdec.control.controller import Controller
from specdec.control.memory import Memory
from specdec.control.settings import ControlSettings
from specdec.serving.drafter_names import LOOKUP
from specdec.serving.settings import OrchestratorSettings

CONTEXT = 256
"""Tokens of context at which times are given."""


def report(
    path: Path, settings: OrchestratorSettings, asked: Sequence[Way], loads: Sequence[int]
) -> str:
    """Return tables of milliseconds by load, and of acceptance by drafter.

    Raises BuildError if no round was timed, and MemoryMismatchError for a file that is no profile.
    """
    controller = Controller(ControlSettings())
    Memory.found(path).load(controller, time.time())
    costs, book = controller.costs, controller.book
    if not costs.is_known:
        raise BuildError("no round was timed: ask for longer answers (--max-tokens)")
    others = (way for way in asked if way.drafter not in (None, LOOKUP))
    leads = [(str(way.drafter), way.num_draft_tokens or 0) for way in others]
    silent = sorted({name for name, _ in leads if not costs.is_timed(name)})
    leads = [each for each in leads if each[0] not in silent]
    rounds = [costs.pass_line(n, CONTEXT, is_streamed=False) for n in loads]
    rows = [
        ["milliseconds, streams:", *map(str, loads)],
        ["a step of the target alone", *(_ms(costs.plain_s(n, CONTEXT)) for n in loads)],
        [
            "a round without guesses",
            *(_ms(start_s + n * row_s) for n, (start_s, row_s) in zip(loads, rounds, strict=True)),
        ],
        [
            "one more guess in everyone's",
            *(_ms(n * row_s) for n, (_, row_s) in zip(loads, rounds, strict=True)),
        ],
        *(
            [
                f"a round with {length} guesses of {name}",
                *(
                    _ms(start_s + n * (1 + length) * row_s + costs.draft_s(name, n, length))
                    for n, (start_s, row_s) in zip(loads, rounds, strict=True)
                ),
            ]
            for name, length in leads
        ),
    ]
    known = [(name, *book.alpha("", name)) for name in settings.drafters]
    alphas = [[name, f"{alpha:.2f}", f"{num:.0f}"] for name, alpha, num in known if num]
    said = [f"{name} has drafted nothing: the server's log says why" for name in silent]
    return "\n".join([table(rows), "", table([["drafter", "α̂", "of guesses"], *alphas]), *said])


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"
