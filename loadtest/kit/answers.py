"""One measured answer; rates, ratios and draft counts over many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from specdec.clients.figures import num_compared
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


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """Sums over answers; the rates are ratios of sums, None where nothing was drafted."""

    num_tokens: int
    num_rounds: int
    num_steps: int
    """Rounds with a draft."""
    num_drafted: int
    num_accepted: int
    num_compared: int
    """Draft tokens compared with the target: the accepted ones and the first rejected one."""

    @property
    def tau(self) -> float | None:
        """Mean tokens of a round with a draft, the target's own included."""
        return 1 + self.num_accepted / self.num_steps if self.num_steps else None

    @property
    def conditional_acceptance(self) -> float | None:
        """α̂ = Σ accepted / Σ min(accepted + 1, k), defined for chains only."""
        return self.num_accepted / self.num_compared if self.num_compared else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted ÷ drafted tokens, which falls with k at the same α̂."""
        return self.num_accepted / self.num_drafted if self.num_drafted else None

    @property
    def drafted_share(self) -> float:
        """Share of the rounds that have a draft."""
        return self.num_steps / self.num_rounds

    @property
    def tokens_per_round(self) -> float:
        """Mean tokens of all rounds."""
        return self.num_tokens / self.num_rounds


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
    known = list(measured)
    statistics = [each.statistics or {} for each in known]
    return DraftCounts(
        num_tokens=sum(each.num_tokens for each in known),
        num_rounds=sum(each["round_times"]["num_rounds"] + 1 for each in statistics),
        num_steps=sum(each["num_spec_steps"] for each in statistics),
        num_drafted=sum(each["num_draft_tokens"] for each in statistics),
        num_accepted=sum(each["num_accepted_draft_tokens"] for each in statistics),
        num_compared=sum(num_compared(each) or 0 for each in statistics),
    )
