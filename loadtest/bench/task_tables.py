"""The tables of `specdec bench tasks`: what a guide expects by task, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadtest.bench.arms import OFF
from loadtest.bench.article import (
    TASKS,
    Expectation,
    Range,
    mean,
)
from loadtest.bench.counting import DraftCounts, count, together
from loadtest.bench.ratios import Ratio, ratio
from loadtest.bench.reporting import markdown_table, shown
from loadtest.bench.speed_tables import Measurement, later, of, rate_of, whole
from specdec.control.expectation import expected_tokens

EVERY_TASK = Expectation(
    mean(each.acceptance_rate for each in TASKS.values()),
    mean(each.speed_up for each in TASKS.values()),
)
"""What is expected over all tasks: the mean."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One drafter on one task, or on all of them."""

    counts: DraftCounts
    on_over_off: Ratio
    """Tokens per second of whole answers; 95 % from resampling the prompts."""
    later_on_over_off: float
    """The same behind the first response, which waits for the prompt."""
    round_cost: float
    """A round's time in tokens of the target alone."""

    @property
    def num_draft_tokens(self) -> float:
        """Guesses of a round that has any."""
        return self.counts.num_drafted / self.counts.num_steps if self.counts.num_steps else 0.0

    def speed_up_at(self, acceptance: float) -> float:
        """What it would be if guesses stood so often and all else, costs included, were the same.

        Of a round that drafts; the others stay what they are.
        """
        gained = expected_tokens(acceptance, self.num_draft_tokens) - 1
        return (1 + self.counts.drafted_share * gained) / self.round_cost


Outcomes = Mapping[tuple[str | None, str], Outcome]
"""By task (None: all of them) and drafter, in the order in which they are shown."""


def outcomes(found: list[Measurement], drafters: Sequence[str]) -> Outcomes:
    """What became of each task with each drafter."""
    tasks = [*dict.fromkeys(each.column for each in found), None]
    return {(task, each): outcome(found, each, task) for task in tasks for each in drafters}


def outcome(found: list[Measurement], drafter: str, task: str | None) -> Outcome:
    """Of the answers of one arm to one task's prompts, or to all; statistics are needed."""
    on, off = of(found, drafter, task), of(found, OFF, task)
    times = [(each.statistics or {})["round_times"] for each in on]
    round_s = sum(each["total_s"] for each in times) / sum(each["num_rounds"] for each in times)
    return Outcome(
        counts=together(count(each.num_tokens, each.statistics or {}) for each in on),
        on_over_off=ratio(
            {each.prompt_id: whole(each) for each in on},
            {each.prompt_id: whole(each) for each in off},
        ),
        later_on_over_off=rate_of(on, later) / rate_of(off, later),
        round_cost=round_s * rate_of(off, later),
    )


def figures(known: Outcomes) -> list[dict[str, Any]]:
    """List every outcome under its task ("all" for all of them) and drafter."""
    return [
        {"task": task or "all", "drafter": drafter, **asdict(own)}
        for (task, drafter), own in known.items()
    ]


def expected(task: str | None) -> Expectation:
    """By the guide, for one task or for all."""
    return EVERY_TASK if task is None else TASKS[task]


def tables(known: Outcomes) -> str:
    """A table for each figure, tasks down and drafters across."""
    tasks, drafters = (list(dict.fromkeys(names)) for names in zip(*known, strict=True))

    def table(
        title: str, guide: Callable[[Expectation], str], cell: Callable[[Outcome], str]
    ) -> str:
        rows = [
            [label(task), guide(expected(task)), *(cell(known[task, each]) for each in drafters)]
            for task in tasks
        ]
        return markdown_table([title, "guide", *map(str, drafters)], rows)

    return "\n\n".join(
        [
            table(
                "accepted ÷ drafted",
                lambda guide: str(guide.acceptance_rate),
                lambda own: shown(own.counts.acceptance_rate, 3),
            ),
            table(
                "α̂",
                lambda guide: str(guide.conditional_acceptance),
                lambda own: shown(own.counts.conditional_acceptance, 3),
            ),
            table(
                "τ",
                lambda guide: str(guide.mean_acceptance_length),
                lambda own: shown(own.counts.tau, 2),
            ),
            table(
                "on ÷ off, 95 % interval",
                lambda guide: str(guide.speed_up),
                lambda own: str(own.on_over_off),
            ),
        ]
    )


def distance_table(known: Outcomes) -> str:
    """How much of the distance is the guesses' and how much their cost here, over all tasks."""
    guide = EVERY_TASK.conditional_acceptance
    rows = []
    for drafter, own in ((drafter, own) for (task, drafter), own in known.items() if task is None):
        there = Range(own.speed_up_at(guide.low), own.speed_up_at(guide.high))
        rows.append(
            [
                drafter,
                f"{own.num_draft_tokens:.1f}",
                f"{own.counts.drafted_share:.2f}",
                f"{own.counts.tokens_per_round:.2f}",
                f"{own.round_cost:.2f}",
                f"{own.later_on_over_off:.2f}",
                str(there),
            ]
        )
    header = ["all tasks, after the first response", "guesses", "rounds with any"]
    header += ["tokens a round", "its cost in tokens of off", "on ÷ off", "at the guide's α̂"]
    return markdown_table(header, rows)


def label(task: str | None) -> str:
    """For a reader."""
    return "all" if task is None else task.replace("_", " ")
