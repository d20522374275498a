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
from specdec.steering.controller import Controller
from specdec.steering.settings import ControlSettings
from specdec.steering.state_file import StateFile

CONTEXT = 256
"""Tokens of context at which times are given."""


def report(
    path: Path, settings: OrchestratorSettings, choices: Sequence[Choice], loads: Sequence[int]
) -> str:
    """Return tables of milliseconds by load, and of acceptance by drafter.

    Raises BuildError if no round was timed, and StateFileMismatchError for a file that is not a
    profile.
    """
    controller = Controller(ControlSettings())
    StateFile.found(path).load(controller, time.time())
    costs, book = controller.costs, controller.book
    if not costs.is_known:
        raise BuildError("no round was timed: ask for longer answers (--max-tokens)")
    others = (each for each in choices if each.drafter not in (None, LOOKUP))
    drafts = [(str(each.drafter), each.num_draft_tokens or 0) for each in others]
    idle = sorted({name for name, _ in drafts if not costs.is_timed(name)})
    drafts = [each for each in drafts if each[0] not in idle]
    rounds = [costs.pass_line(n, CONTEXT, is_streamed=False) for n in loads]
    rows = [
        ["milliseconds, streams:", *map(str, loads)],
        ["a plain step", *(_ms(costs.plain_s(n, CONTEXT)) for n in loads)],
        [
            "a round without draft tokens",
            *(_ms(start_s + n * row_s) for n, (start_s, row_s) in zip(loads, rounds, strict=True)),
        ],
        [
            "one more draft token for each request",
            *(_ms(n * row_s) for n, (_, row_s) in zip(loads, rounds, strict=True)),
        ],
        *(
            [
                f"a round with {length} draft tokens of {name}",
                *(
                    _ms(start_s + n * (1 + length) * row_s + costs.draft_s(name, n, length))
                    for n, (start_s, row_s) in zip(loads, rounds, strict=True)
                ),
            ]
            for name, length in drafts
        ),
    ]
    known = [(name, *book.alpha("", name)) for name in settings.drafters]
    alphas = [[name, f"{alpha:.2f}", f"{num:.0f}"] for name, alpha, num in known if num]
    notes = [f"{name} has drafted nothing: the server's log says why" for name in idle]
    return "\n".join([table(rows), "", table([["drafter", "α̂", "draft tokens"], *alphas]), *notes])


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"
