"""The figures and the table of `specdec bench ramp`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.bench.arms import OFF
from loadtest.bench.ratios import Ratio, resampled
from loadtest.bench.reporting import markdown_table

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Pass:
    """So many streams for a while, one way."""

    num_streams: int
    number: int
    arm: str
    seconds: float
    num_tokens: int
    """That arrived in these seconds."""
    num_answered: int
    """Tokens of the answers that ended in the pass."""
    num_drafted: int
    """Guesses in these answers."""
    num_accepted: int
    cpu_s: float
    """Processor time of the server beside its engines, in these seconds."""

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def num_rounds(self) -> int:
        """Each confirms one token more than it accepts guesses."""
        return self.num_answered - self.num_accepted


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """All passes at one number of streams."""

    num_streams: int
    num_pairs: int
    off_tokens_per_s: float
    """Median over the passes, as for `auto`."""
    auto_tokens_per_s: float
    auto_over_off: Ratio
    drafted_per_round: float
    """Draft tokens a round of `auto`."""
    tokens_per_round: float
    off_cpu_ms: float
    """Processor time of the server beside its engines, for each token; as for `auto`."""
    auto_cpu_ms: float


def figures(found: Sequence[Pass]) -> list[LoadFigures]:
    """Sum up the passes at each number of streams."""
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
                _gain(own, numbers),
                sum(each.num_drafted for each in auto) / num_rounds,
                sum(each.num_answered for each in auto) / num_rounds,
                _cpu_ms(off),
                _cpu_ms(auto),
            )
        )
    return loads


def table(loads: Sequence[LoadFigures]) -> str:
    """Show a row for each number of streams."""
    header = ["streams", "off, tokens/s", "auto", "auto ÷ off, 95 % interval"]
    header += ["draft tokens a round", "τ", "processor beside the engines, ms a token: off", "auto"]
    rows = [
        [
            str(each.num_streams),
            f"{each.off_tokens_per_s:.0f}",
            f"{each.auto_tokens_per_s:.0f}",
            str(each.auto_over_off),
            f"{each.drafted_per_round:.2f}",
            f"{each.tokens_per_round:.2f}",
            f"{each.off_cpu_ms:.2f}",
            f"{each.auto_cpu_ms:.2f}",
        ]
        for each in loads
    ]
    return markdown_table(header, rows)


def _cpu_ms(passes: Sequence[Pass]) -> float:
    """A token."""
    num_tokens = sum(each.num_tokens for each in passes)
    return 1000 * sum(each.cpu_s for each in passes) / num_tokens


def _gain(own: dict[tuple[str, str], Pass], numbers: Sequence[str]) -> Ratio:
    def rate(arm: str, drawn: Sequence[str]) -> float:
        return sum(own[arm, number].tokens_per_s for number in drawn)

    return resampled(numbers, lambda drawn: rate(AUTO, drawn) / rate(OFF, drawn))
