"""The figures and tables of `specdec bench speed`: rates, ratios, acceptance, round times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.bench.counting import DraftCounts, count, together
from loadtest.bench.ratios import Ratio, Timed, rate, ratio
from loadtest.bench.reporting import markdown_table, shown

TIME_FIELDS = ("total_s", "draft_s", "target_s", "draft_engine_s", "target_engine_s")
ALL = "all"
"""All columns together."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One answer; times in seconds from sending the request."""

    prompt_id: str
    column: str
    arm: str
    num_tokens: int
    num_first: int
    """Of them in the first response."""
    first_s: float
    last_s: float
    statistics: dict[str, Any] | None
    """The response's `speculative_decoding`, where it was asked for."""


@dataclass(frozen=True, slots=True)
class ArmRates:
    """The speed of one arm, in tokens per second; `by_column` includes `ALL`."""

    arm: str
    by_column: dict[str, float]
    after_first: float
    """After the first response, which waits for the prompt."""
    median_first_ms: float


@dataclass(frozen=True, slots=True)
class Gain:
    """One arm's rates over another's, all prompts together."""

    arm: str
    base: str
    whole: Ratio
    after_first: Ratio
    mean_first: Ratio
    """The mean times to the first response, one over the other."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What became of one arm's draft tokens; None where nothing was drafted."""

    arm: str
    tokens_per_round: float
    acceptance_rate: float | None
    drafted_share: float
    tau_by_column: dict[str, float | None]
    """`ALL` included; in the same order for every arm."""


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Where the mean round of one arm spends its time."""

    arm: str
    num_rounds: int
    total_ms: float
    draft_engine_ms: float
    target_engine_ms: float
    bls_ms: float
    """Calls of engines, without the engines' own time."""

    @property
    def rest_ms(self) -> float:
        return self.total_ms - self.draft_engine_ms - self.target_engine_ms - self.bls_ms

    @property
    def share_outside_engines(self) -> float:
        return (self.bls_ms + self.rest_ms) / self.total_ms


def of(found: list[Measurement], arm: str, column: str | None = None) -> list[Measurement]:
    """Those of one arm, and of one column if it is named."""
    return [each for each in found if each.arm == arm and column in {None, each.column}]


def whole(measured: Measurement) -> Timed:
    """Of the whole request, prompt processing included."""
    return Timed(measured.num_tokens, measured.last_s)


def later(measured: Measurement) -> Timed:
    """Behind the first response, which waits for the prompt."""
    return Timed(measured.num_tokens - measured.num_first, measured.last_s - measured.first_s)


def first(measured: Measurement) -> Timed:
    """The first response: its rate is one in the time to the first token."""
    return Timed(1, measured.first_s)


def rate_of(measured: Iterable[Measurement], part: Callable[[Measurement], Timed] = whole) -> float:
    """Tokens per second."""
    return rate(part(each) for each in measured)


def ratio_of(
    found: list[Measurement],
    arm: str,
    base: str,
    column: str | None = None,
    part: Callable[[Measurement], Timed] = whole,
) -> Ratio:
    """Return the ratio of rates, with a 95 % interval from resampling the prompts."""
    over = {each.prompt_id: part(each) for each in of(found, arm, column)}
    under = {each.prompt_id: part(each) for each in of(found, base, column)}
    return ratio(over, under)


def rates(found: list[Measurement], arms: Iterable[str]) -> list[ArmRates]:
    """Return the speed of each arm."""
    return [
        ArmRates(
            arm,
            {name: rate_of(of(found, arm, column)) for name, column in _columns(found)},
            rate_of(of(found, arm), later),
            statistics.median(each.first_s for each in of(found, arm)) * 1000,
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
            ratio_of(found, arm, base, part=later),
            ratio_of(found, base, arm, part=first),  # The inverse: of times, not of rates.
        )
        for arm in arms
        for base in bases
    ]


def acceptances(found: list[Measurement], drafters: Iterable[str]) -> list[Acceptance]:
    """Sum up each arm's draft tokens, where its answers came with statistics."""
    figures = []
    for arm in drafters:
        known = [each for each in of(found, arm) if each.statistics]
        if known:
            whole = _counts(known)
            taus = {name: _counts(of(known, arm, each)).tau for name, each in _columns(found)}
            figures.append(
                Acceptance(
                    arm,
                    whole.tokens_per_round,
                    whole.acceptance_rate,
                    whole.drafted_share,
                    taus,
                )
            )
    return figures


def round_times(found: list[Measurement], drafters: Iterable[str]) -> list[RoundTimes]:
    """Average the rounds of each arm; all its answers need statistics."""
    figures = []
    for arm in drafters:
        known = [each.statistics["round_times"] for each in of(found, arm) if each.statistics]
        num_rounds = sum(each["num_rounds"] for each in known)
        total, draft, target, draft_own, target_own = (
            sum(each[name] for each in known) / num_rounds * 1000 for name in TIME_FIELDS
        )
        # A drafter without an engine waits for nobody; its time is the orchestrator's.
        bls = (target - target_own) + (max(0.0, draft - draft_own) if draft_own else 0.0)
        figures.append(RoundTimes(arm, num_rounds, total, draft_own, target_own, bls))
    return figures


def rates_table(figures: Sequence[ArmRates]) -> str:
    """Show tokens per second by column, those after the first response, and the time to it."""
    rows = [
        [column, *(f"{each.by_column[column]:.1f}" for each in figures)]
        for column in figures[0].by_column
    ]
    rows.append(["after the first", *(f"{each.after_first:.1f}" for each in figures)])
    rows.append(["median TTFT, ms", *(f"{each.median_first_ms:.0f}" for each in figures)])
    return markdown_table(["tokens/s", *(each.arm for each in figures)], rows)


def gains_table(figures: Sequence[Gain]) -> str:
    """Show a row for each arm and base."""
    rows = [
        [f"{each.arm} ÷ {each.base}", *map(str, (each.whole, each.after_first, each.mean_first))]
        for each in figures
    ]
    header = ["ratio, 95 % interval", "whole answers", "after the first", "mean TTFT"]
    return markdown_table(header, rows)


def acceptance_table(figures: Sequence[Acceptance]) -> str:
    """Show tokens per round, the drafts' fate and τ by column; empty without statistics."""
    if not figures:
        return ""
    rows = [
        [
            each.arm,
            f"{each.tokens_per_round:.2f}",
            shown(each.acceptance_rate, 3),
            f"{each.drafted_share:.2f}",
            *(shown(tau, 2) for tau in each.tau_by_column.values()),
        ]
        for each in figures
    ]
    columns = [f"τ, {name}" for name in figures[0].tau_by_column]
    header = ["acceptance", "tokens/round", "accepted/drafted", "drafted rounds", *columns]
    return markdown_table(header, rows)


def times_table(figures: Sequence[RoundTimes]) -> str:
    """Show where a round's time goes, by arm."""
    rows = []
    for each in figures:
        times_ms = (each.total_ms, each.draft_engine_ms, each.target_engine_ms)
        cells = [f"{value:.2f}" for value in (*times_ms, each.bls_ms, each.rest_ms)]
        rows.append([each.arm, str(each.num_rounds), *cells, f"{each.share_outside_engines:.1%}"])
    header = ["ms per round", "rounds", "all", "draft engine", "target engine", "BLS", "rest"]
    return markdown_table([*header, "not engine"], rows)


def _columns(found: Iterable[Measurement]) -> list[tuple[str, str | None]]:
    """Name every column and, at the end, all of them together."""
    return [*((name, name) for name in dict.fromkeys(each.column for each in found)), (ALL, None)]


def _counts(found: Iterable[Measurement]) -> DraftCounts:
    return together(count(each.num_tokens, each.statistics or {}) for each in found)
