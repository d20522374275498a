"""The tables of `specdec bench speed`: rates, ratios, acceptance, and where the time goes."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.bench.ratios import Timed, rate, ratio
from loadtest.bench.reporting import markdown_table

TIME_FIELDS = ("total_s", "draft_s", "target_s", "draft_engine_s", "target_engine_s")


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
) -> str:
    """Ratio of rates, with a 95 % interval from resampling the prompts."""
    over = {each.prompt_id: part(each) for each in of(found, arm, column)}
    under = {each.prompt_id: part(each) for each in of(found, base, column)}
    return str(ratio(over, under))


def rates_table(found: list[Measurement], arms: Sequence[str]) -> str:
    """Tokens per second by column, behind the first response, and the time to it."""
    columns: list[str | None] = [*dict.fromkeys(each.column for each in found), None]
    rows = [
        [column or "all", *(f"{rate_of(of(found, arm, column)):.1f}" for arm in arms)]
        for column in columns
    ]
    rows.append(["behind the first", *(f"{rate_of(of(found, arm), later):.1f}" for arm in arms)])
    first_ms = (statistics.median(m.first_s for m in of(found, arm)) * 1000 for arm in arms)
    rows.append(["median TTFT, ms", *(f"{value:.0f}" for value in first_ms)])
    return markdown_table(["tokens/s", *arms], rows)


def speed_table(found: list[Measurement], arms: Sequence[str]) -> str:
    """Rates by column, and the arms behind the first two as ratios to these."""
    columns: list[str | None] = [*dict.fromkeys(each.column for each in found), None]
    ratios = [
        [
            f"{arm} ÷ {base}",
            *(ratio_of(found, arm, base, column) for column in columns),
            ratio_of(found, arm, base, part=later),
            ratio_of(found, base, arm, part=first),  # of times, not of rates
        ]
        for arm in arms[2:]
        for base in arms[:2]
    ]
    header = ["ratio, 95 % interval", *(column or "all" for column in columns)]
    header += ["behind the first", "mean TTFT"]
    return rates_table(found, arms) + "\n\n" + markdown_table(header, ratios)


def acceptance_table(found: list[Measurement], drafters: list[str]) -> str:
    """Tokens per round and what became of the drafts, by arm and column."""
    columns: list[str | None] = [*dict.fromkeys(each.column for each in found), None]
    rows = []
    for arm in drafters:
        for column in columns:
            known = [each.statistics for each in of(found, arm, column) if each.statistics]
            if not known:
                continue
            totals: defaultdict[str, int] = defaultdict(int)
            for each in known:
                for name in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens"):
                    totals[name] += each[name]
            rounds = sum(each["round_times"]["num_rounds"] + 1 for each in known)
            tokens = sum(each.num_tokens for each in of(found, arm, column))
            steps, drafted = totals["num_spec_steps"], totals["num_draft_tokens"]
            accepted = totals["num_accepted_draft_tokens"]
            rows.append(
                [
                    f"{arm}, {column or 'all'}",
                    f"{tokens / rounds:.2f}",
                    f"{1 + accepted / steps:.2f}" if steps else "–",
                    f"{accepted / drafted:.3f}" if drafted else "–",
                    f"{steps / rounds:.2f}",
                ]
            )
    header = ["acceptance", "tokens/round", "τ of drafted rounds", "accepted/drafted", "drafted"]
    return markdown_table(header, rows) if rows else ""


def times_table(found: list[Measurement], drafters: list[str]) -> str:
    """Where a round's time goes, by arm."""
    header = ["ms per round", "rounds", "all", "draft engine", "target engine", "BLS", "rest"]
    header.append("not engine")
    rows = []
    for arm in drafters:
        known = [each.statistics["round_times"] for each in of(found, arm) if each.statistics]
        count = sum(each["num_rounds"] for each in known)
        total, draft, target, draft_own, target_own = (
            sum(each[name] for each in known) / count * 1000 for name in TIME_FIELDS
        )
        # A drafter without an engine waits for nobody; its time is the orchestrator's.
        engines = draft_own + target_own
        bls = (target - target_own) + (max(0.0, draft - draft_own) if draft_own else 0.0)
        values = [total, draft_own, target_own, bls, total - engines - bls]
        share = (total - engines) / total
        rows.append([arm, str(count), *(f"{value:.2f}" for value in values), f"{share:.1%}"])
    return markdown_table(header, rows)
