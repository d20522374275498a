"""The figures and tables of the benches of one stream: rates, gains, acceptance, round times."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specdec.loadtest.kit.answers import (
    DraftCounts,
    Measurement,
    after_first_response,
    answers_of_arm,
    counts_of,
    rate_of,
    ratio_of,
    until_first_response,
)
from specdec.loadtest.kit.arms import Arm
from specdec.loadtest.kit.ratios import Ratio
from specdec.loadtest.kit.results import format_number, markdown_table, table_of

TIME_FIELDS = ("total_s", "draft_s", "target_s", "draft_engine_s", "target_engine_s")
ALL = "all"
"""The name for all columns together."""


@dataclass(frozen=True, slots=True)
class ArmRates:
    """The speed of one arm, in tokens per second."""

    arm: str
    by_column: dict[str, float]
    """The rates by column, `ALL` included."""
    after_first: float
    """The rate after the first response, which waits for the prompt."""
    median_first_ms: float


@dataclass(frozen=True, slots=True)
class Gain:
    """One arm's rates ÷ another's, over all prompts together."""

    arm: str
    base: str
    whole: Ratio
    after_first: Ratio
    mean_first: Ratio
    """Mean time to the first response of `arm` ÷ that of `base`."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The acceptance of one arm's draft tokens; None where nothing was drafted."""

    arm: str
    counts: DraftCounts
    conditional_acceptance: float | None
    """α̂; None also where it is not defined."""
    tau_by_column: dict[str, float | None]
    """τ by column, `ALL` included, in the same order for every arm."""


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """The parts of one arm's mean round, in milliseconds."""

    arm: str
    num_rounds: int
    total_ms: float
    draft_engine_ms: float
    target_engine_ms: float
    bls_ms: float
    """Calls of engines, without the engines' own time."""

    @property
    def rest_ms(self) -> float:
        """The part that is neither an engine nor a call of one."""
        return self.total_ms - self.draft_engine_ms - self.target_engine_ms - self.bls_ms

    @property
    def share_outside_engines(self) -> float:
        """The share of the round outside the engines."""
        return (self.bls_ms + self.rest_ms) / self.total_ms


def rates(found: list[Measurement], arms: Iterable[str]) -> list[ArmRates]:
    """Return the speed of each arm."""
    return [
        ArmRates(
            arm,
            {name: rate_of(answers_of_arm(found, arm, column)) for name, column in _columns(found)},
            rate_of(answers_of_arm(found, arm), after_first_response),
            statistics.median(each.first_s for each in answers_of_arm(found, arm)) * 1000,
        )
        for arm in arms
    ]


def gains(found: list[Measurement], arms: Iterable[str], bases: Sequence[str]) -> list[Gain]:
    """Compare each arm with each base on the same prompts."""
    return [
        Gain(
            arm,
            base,
            ratio_of(found, arm, base),
            ratio_of(found, arm, base, part=after_first_response),
            # The other way round: a ratio of times, not of rates.
            ratio_of(found, base, arm, part=until_first_response),
        )
        for arm in arms
        for base in bases
    ]


def acceptances(found: list[Measurement], arms: Mapping[str, Arm]) -> list[Acceptance]:
    """Return the acceptance of each arm, by its name, whose answers have statistics."""
    figures = []
    for name, arm in arms.items():
        known = [each for each in answers_of_arm(found, name) if each.statistics]
        if known:
            counts = counts_of(known)
            alpha = counts.conditional_acceptance if arm.has_chains else None
            columns = {own: answers_of_arm(known, name, each) for own, each in _columns(found)}
            taus = {own: counts_of(each).tau for own, each in columns.items()}
            figures.append(Acceptance(name, counts, alpha, taus))
    return figures


def round_times(found: list[Measurement], arms: Iterable[str]) -> list[RoundTimes]:
    """Return the mean round of each arm; all its answers need statistics."""
    figures = []
    for arm in arms:
        known = [
            each.statistics["round_times"] for each in answers_of_arm(found, arm) if each.statistics
        ]
        num_rounds = sum(each["num_rounds"] for each in known)
        total, draft, target, draft_own, target_own = (
            sum(each[name] for each in known) / num_rounds * 1000 for name in TIME_FIELDS
        )
        # A drafter without an engine makes no call; its time is the orchestrator's.
        bls = (target - target_own) + (max(0.0, draft - draft_own) if draft_own else 0.0)
        figures.append(RoundTimes(arm, num_rounds, total, draft_own, target_own, bls))
    return figures


def rates_table(figures: Sequence[ArmRates]) -> str:
    """Return a table with a column for each arm."""
    rows = [
        [column, *(f"{each.by_column[column]:.1f}" for each in figures)]
        for column in figures[0].by_column
    ]
    rows.append(["after the first", *(f"{each.after_first:.1f}" for each in figures)])
    rows.append(["median TTFT, ms", *(f"{each.median_first_ms:.0f}" for each in figures)])
    return markdown_table(["tokens/s", *(each.arm for each in figures)], rows)


def gains_table(figures: Sequence[Gain]) -> str:
    """Return a table with a row for each arm and base."""
    return table_of(
        {
            "ratio, 95 % interval": lambda each: f"{each.arm} ÷ {each.base}",
            "whole answers": lambda each: str(each.whole),
            "after the first": lambda each: str(each.after_first),
            "mean TTFT": lambda each: str(each.mean_first),
        },
        figures,
    )


def acceptance_table(figures: Sequence[Acceptance]) -> str:
    """Return a table with a row for each arm; empty if there are no arms."""
    rows = [
        [
            each.arm,
            f"{each.counts.tokens_per_round:.2f}",
            format_number(each.counts.acceptance_rate, 3),
            format_number(each.conditional_acceptance, 3),
            f"{each.counts.drafted_share:.2f}",
            *(format_number(tau, 2) for tau in each.tau_by_column.values()),
        ]
        for each in figures
    ]
    columns = [f"τ, {name}" for name in figures[0].tau_by_column] if figures else []
    header = ["acceptance", "tokens/round", "accepted/drafted", "α̂", "drafted rounds"]
    return markdown_table([*header, *columns], rows) if rows else ""


def times_table(figures: Sequence[RoundTimes]) -> str:
    """Return a table with the parts of a round, in milliseconds, by arm."""
    return table_of(
        {
            "ms per round": lambda each: each.arm,
            "rounds": lambda each: str(each.num_rounds),
            "all": lambda each: f"{each.total_ms:.2f}",
            "draft engine": lambda each: f"{each.draft_engine_ms:.2f}",
            "target engine": lambda each: f"{each.target_engine_ms:.2f}",
            "BLS": lambda each: f"{each.bls_ms:.2f}",
            "rest": lambda each: f"{each.rest_ms:.2f}",
            "not engine": lambda each: f"{each.share_outside_engines:.1%}",
        },
        figures,
    )


def _columns(found: Iterable[Measurement]) -> list[tuple[str, str | None]]:
    """Return the name and the selection of every column, and last of all columns together."""
    return [*((name, name) for name in dict.fromkeys(each.column for each in found)), (ALL, None)]
