"""The figures and tables of `specdec bench tasks`: by task and drafter, beside a guide's ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specdec.loadtest.kit.answers import Measurement, answers_of_arm, counts_of, ratio_of
from specdec.loadtest.kit.arms import OFF
from specdec.loadtest.kit.draft_counts import DraftCounts
from specdec.loadtest.kit.guide import ALL_TASKS, TASKS, Expectation, Range
from specdec.loadtest.kit.ratios import Ratio
from specdec.loadtest.kit.results import format_number, markdown_table


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

    def table(
        title: str, guide: Callable[[Expectation], Range], cell: Callable[[Outcome], str]
    ) -> str:
        rows = [
            [label(task), str(guide(expected(task))), *(cell(known[task, d]) for d in drafters)]
            for task in tasks
        ]
        return markdown_table([title, "guide", *map(str, drafters)], rows)

    rate = table(
        "accepted ÷ drafted",
        lambda guide: guide.acceptance_rate,
        lambda own: format_number(own.counts.acceptance_rate, 3),
    )
    alpha = table(
        "α̂",
        lambda guide: guide.conditional_acceptance,
        lambda own: format_number(own.counts.conditional_acceptance, 3),
    )
    tau = table(
        "τ",
        lambda guide: guide.mean_acceptance_length,
        lambda own: format_number(own.counts.tau, 2),
    )
    gain = table(
        "on ÷ off, 95 % interval", lambda guide: guide.speed_up, lambda own: str(own.on_over_off)
    )
    return f"{rate}\n\n{alpha}\n\n{tau}\n\n{gain}"
