"""What a profile says, in tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from builder.profiling.load import LENGTHS
from builder.tables import table
from specdec.control.controller import Controller
from specdec.control.memory import Memory
from specdec.control.settings import ControlSettings
from specdec.serving.settings import OrchestratorSettings

CONTEXT = 256
"""Tokens of text at which times are told."""


def report(path: Path, settings: OrchestratorSettings, loads: Sequence[int]) -> str:
    """Milliseconds by load, then acceptance by drafter. Raises MemoryMismatchError."""
    controller = Controller(ControlSettings())
    Memory.found(path).load(controller, time.time())
    costs, book = controller.costs, controller.book
    leads = [(name, length) for name in settings.draft_models for length in LENGTHS["engine"]]
    leads += [(name, length) for name in settings.heads for length in LENGTHS["head"]]
    leads += [(name, settings.head_tree_num_draft_tokens) for name in settings.head_trees]
    leads = [each for each in leads if costs.is_timed(each[0])]
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
            [f"{name} for {length} guesses", *(_ms(costs.draft_s(name, n, length)) for n in loads)]
            for name, length in leads
        ),
    ]
    known = [(name, *book.alpha("", name)) for name in settings.drafters]
    alphas = [[name, f"{alpha:.2f}", f"{num:.0f}"] for name, alpha, num in known if num]
    return f"{table(rows)}\n\n{table([['drafter', 'α̂', 'of guesses'], *alphas])}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"
