"""The figures and tables of `specdec bench tasks`: by task and drafter, beside a guide's ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specdec.estimates.formulas import expected_tokens
from specdec.loadtest.kit.answers import (
    Measurement,
    after_first_response,
    answers_of_arm,
    counts_of,
    rate_of,
    ratio_of,
)
from specdec.loadtest.kit.arms import OFF
from specdec.loadtest.kit.draft_counts import DraftCounts
from specdec.loadtest.kit.guide import ALL_TASKS, TASKS, Expectation, Range
from specdec.loadtest.kit.ratios import Ratio
from specdec.loadtest.kit.results import format_number, markdown_table, table_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of one drafter on one task, or on all of them."""

    counts: DraftCounts
    on_over_off: Ratio
    """Tokens per second of whole answers ÷ those without speculation."""
    later_on_over_off: float
    """The same ratio after the first response, which waits for the prompt."""
    round_cost: float
    """Time of a round ÷ time of a token without speculation."""

    @property
    def num_draft_tokens(self) -> float:
        """Mean draft tokens of a round with a draft."""
        return self.counts.num_drafted / self.counts.num_steps if self.counts.num_steps else 0.0

    def speed_up_at(self, acceptance: float) -> float:
        """Return the speed-up at another α̂ with the same costs and share of rounds with a draft."""
        gained = expected_tokens(acceptance, self.num_draft_tokens) - 1
        return (1 + self.counts.drafted_share * gained) / self.round_cost


Outcomes = Mapping[tuple[str | None, str], Outcome]
"""Outcomes by task (None for all of them) and drafter, in the order of the tables."""


def outcomes(found: list[Measurement], drafters: Sequence[str]) -> Outcomes:
    """Return the outcome of each task, and of all, with each drafter."""
    tasks = [*dict.fromkeys(each.column for each in found), None]
    return {(task, each): outcome(found, each, task) for task in tasks for each in drafters}


def outcome(found: list[Measurement], drafter: str, task: str | None) -> Outcome:
    """Return the outcome of one drafter; its answers need statistics."""
    on, off = answers_of_arm(found, drafter, task), answers_of_arm(found, OFF, task)
    times = [(each.statistics or {})["round_times"] for each in on]
    round_s = sum(each["total_s"] for each in times) / sum(each["num_rounds"] for each in times)
    return Outcome(
        counts=counts_of(on),
        on_over_off=ratio_of(found, drafter, OFF, task),
        later_on_over_off=rate_of(on, after_first_response) / rate_of(off, after_first_response),
        round_cost=round_s * rate_of(off, after_first_response),
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


def distance_table(known: Outcomes) -> str:
    """Return a table over all tasks that separates the effects of acceptance and of costs.

    Its last column is the speed-up that the guide's acceptance would give at our costs.
    """
    guide = ALL_TASKS.conditional_acceptance
    rows = [(drafter, own) for (task, drafter), own in known.items() if task is None]
    return table_of(
        {
            "all tasks, after the first response": lambda row: row[0],
            "draft tokens": lambda row: f"{row[1].num_draft_tokens:.1f}",
            "rounds with any": lambda row: f"{row[1].counts.drafted_share:.2f}",
            "tokens a round": lambda row: f"{row[1].counts.tokens_per_round:.2f}",
            "its cost in tokens of off": lambda row: f"{row[1].round_cost:.2f}",
            "on ÷ off": lambda row: f"{row[1].later_on_over_off:.2f}",
            "at the guide's α̂": lambda row: str(
                Range(row[1].speed_up_at(guide.low), row[1].speed_up_at(guide.high))
            ),
        },
        rows,
    )
