"""The figures and tables of `specdec bench tasks`: by task and drafter, beside a guide's ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specdec.loadtest.kit.answers import (
    DraftCounts,
    Measurement,
    answers_of_arm,
    counts_of,
    ratio_of,
)
from specdec.loadtest.kit.arms import OFF
from specdec.loadtest.kit.guide import ALL_TASKS, TASKS, Expectation, Range
from specdec.loadtest.kit.ratios import Ratio
from specdec.loadtest.kit.results import format_number, markdown_table

TITLES = ("accepted ÷ drafted", "α̂", "τ", "on ÷ off, 95 % interval")
"""The tables, by their figure."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of one drafter on one task, or on all of them."""

    counts: DraftCounts
    on_over_off: Ratio
    """Tokens per second of whole answers ÷ those without speculation."""


Outcomes = Mapping[tuple[str | None, str], Outcome]
"""Outcomes by task (None for all of them) and drafter, in the order of the tables."""


def outcomes(found: list[Measurement], drafters: Sequence[str]) -> Outcomes:
    """Return the outcome of each task, and of all, with each drafter."""
    tasks = [*dict.fromkeys(each.column for each in found), None]
    return {(task, each): outcome(found, each, task) for task in tasks for each in drafters}


def outcome(found: list[Measurement], drafter: str, task: str | None) -> Outcome:
    """Return the outcome of one drafter; its answers need statistics."""
    return Outcome(
        counts=counts_of(answers_of_arm(found, drafter, task)),
        on_over_off=ratio_of(found, drafter, OFF, task),
    )


def figures(known: Outcomes) -> list[dict[str, Any]]:
    """Return every outcome with its task ("all" for all of them) and drafter."""
    return [
        {"task": task or "all", "drafter": drafter, **asdict(own)}
        for (task, drafter), own in known.items()
    ]


def expected(task: str | None) -> Expectation:
    """Return the guide's ranges for one task, or their means for None."""
    return ALL_TASKS if task is None else TASKS[task]


def label(task: str | None) -> str:
    """Return the name of a task in tables and pictures."""
    return "all" if task is None else task.replace("_", " ")


def tables(known: Outcomes) -> str:
    """Return a table for each figure, with a row for each task and a column for each drafter."""
    tasks, drafters = (list(dict.fromkeys(names)) for names in zip(*known, strict=True))
    parts = []
    for number, title in enumerate(TITLES):
        rows = [
            [
                label(task),
                str(_ranges(task)[number]),
                *(_cells(known[task, drafter])[number] for drafter in drafters),
            ]
            for task in tasks
        ]
        parts.append(markdown_table([title, "guide", *map(str, drafters)], rows))
    return "\n\n".join(parts)


def _ranges(task: str | None) -> tuple[Range, ...]:
    """Return the guide's ranges of a task, in the order of TITLES."""
    guide = expected(task)
    acceptance = guide.acceptance_rate, guide.conditional_acceptance, guide.mean_acceptance_length
    return (*acceptance, guide.speed_up)


def _cells(own: Outcome) -> tuple[str, ...]:
    """Return the cells of an outcome, in the order of TITLES."""
    rate, alpha = own.counts.acceptance_rate, own.counts.conditional_acceptance
    acceptance = format_number(rate, 3), format_number(alpha, 3), format_number(own.counts.tau, 2)
    return (*acceptance, str(own.on_over_off))
