"""The figures and the table of `specdec bench ramp`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec.loadtest.kit.arms import AUTO, OFF
from specdec.loadtest.kit.ratios import Ratio, resampled
from specdec.loadtest.kit.results import table_of
from specdec.loadtest.kit.streams import Pass


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """The figures of all passes with one number of streams; rates are medians over passes."""

    num_streams: int
    num_pairs: int
    off_tokens_per_s: float
    auto_tokens_per_s: float
    auto_over_off: Ratio
    first_auto_over_off: Ratio
    """Mean over passes of the median time to the first token, `auto` ÷ off."""
    drafted_per_round: float
    """Draft tokens of a round of `auto`."""
    tokens_per_round: float


def figures(found: Sequence[Pass]) -> list[LoadFigures]:
    """Sum up the passes with each number of streams."""
    loads = []
    for num_streams in dict.fromkeys(each.num_streams for each in found):
        own = {
            (each.arm, str(each.number)): each for each in found if each.num_streams == num_streams
        }
        numbers = sorted({number for _, number in own})
        off, auto = ([own[arm, number] for number in numbers] for arm in (OFF, AUTO))
        num_rounds = sum(each.num_rounds for each in auto) or 1
        loads.append(
            LoadFigures(
                num_streams,
                len(numbers),
                statistics.median(each.tokens_per_s for each in off),
                statistics.median(each.tokens_per_s for each in auto),
                _gain(own, numbers, lambda each: each.tokens_per_s),
                _gain(own, numbers, lambda each: each.median_first_s),
                sum(each.num_drafted for each in auto) / num_rounds,
                sum(each.num_answered for each in auto) / num_rounds,
            )
        )
    return loads


def table(loads: Sequence[LoadFigures]) -> str:
    """Return a table with a row for each number of streams."""
    return table_of(
        {
            "streams": lambda each: str(each.num_streams),
            "off, tokens/s": lambda each: f"{each.off_tokens_per_s:.0f}",
            "auto": lambda each: f"{each.auto_tokens_per_s:.0f}",
            "auto ÷ off, 95 % interval": lambda each: str(each.auto_over_off),
            "TTFT, auto ÷ off": lambda each: str(each.first_auto_over_off),
            "draft tokens a round": lambda each: f"{each.drafted_per_round:.2f}",
            "tokens a round": lambda each: f"{each.tokens_per_round:.2f}",
        },
        loads,
    )


def _gain(
    own: dict[tuple[str, str], Pass], numbers: Sequence[str], value: Callable[[Pass], float]
) -> Ratio:
    """Return the sum of a value over passes of `auto` ÷ the same without speculation."""

    def total(arm: str, drawn: Sequence[str]) -> float:
        return sum(value(own[arm, number]) for number in drawn)

    return resampled(numbers, lambda drawn: total(AUTO, drawn) / total(OFF, drawn))
