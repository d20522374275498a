"""One measured answer, and rates and ratios over many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from specdec.loadtest.kit.draft_counts import DraftCounts, counts_of_answer, sum_counts
from specdec.loadtest.kit.ratios import Ratio, Timed, rate, ratio


@dataclass(frozen=True, slots=True)
class Measurement:
    """One answer; times are in seconds since the request was sent."""

    prompt_id: str
    column: str
    arm: str
    num_tokens: int
    num_first: int
    """Tokens of the first response."""
    first_s: float
    last_s: float
    statistics: dict[str, Any] | None
    """The `speculative_decoding` statistics of the response; None if not requested."""


def answers_of_arm(
    found: list[Measurement], arm: str, column: str | None = None
) -> list[Measurement]:
    """Return the answers of one arm, in one column or, with None, in all."""
    return [each for each in found if each.arm == arm and column in {None, each.column}]


def whole_answer(measured: Measurement) -> Timed:
    """Return the tokens and time of a whole answer, the time to read the prompt included."""
    return Timed(measured.num_tokens, measured.last_s)


def after_first_response(measured: Measurement) -> Timed:
    """Return the tokens and time after the first response, which waits for the prompt."""
    return Timed(measured.num_tokens - measured.num_first, measured.last_s - measured.first_s)


def until_first_response(measured: Measurement) -> Timed:
    """Return 1 and the time to the first response, so that its rate is 1 ÷ that time."""
    return Timed(1, measured.first_s)


def rate_of(
    measured: Iterable[Measurement], part: Callable[[Measurement], Timed] = whole_answer
) -> float:
    """Return tokens per second over all these answers."""
    return rate(part(each) for each in measured)


def ratio_of(
    found: list[Measurement],
    arm: str,
    base: str,
    column: str | None = None,
    part: Callable[[Measurement], Timed] = whole_answer,
) -> Ratio:
    """Return the rate of `arm` ÷ the rate of `base` on the same prompts, with its interval."""
    over = {each.prompt_id: part(each) for each in answers_of_arm(found, arm, column)}
    under = {each.prompt_id: part(each) for each in answers_of_arm(found, base, column)}
    return ratio(over, under)


def counts_of(measured: Iterable[Measurement]) -> DraftCounts:
    """Return the draft counts of these answers together; each needs its statistics."""
    return sum_counts(counts_of_answer(each.num_tokens, each.statistics or {}) for each in measured)
