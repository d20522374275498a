"""The tables of `specdec bench peers`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtest.bench.ratios import Ratio, Timed, rate, ratio
from loadtest.bench.reporting import markdown_table
from loadtest.peers.catalogue import JUDGED, OUR_ARMS, REFERENCE, ArmName, Way
from loadtest.peers.measuring import Measurement

NOTHING = "–"
ONE_STREAM_HEADER = [
    "one stream",
    "tokens/s",
    "of a prompt: median (quartiles)",
    "median TTFT, ms",
    "auto ÷ it (95 %)",
    "same way ÷ it (95 %)",
    "answers as ours",
    "note",
]


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers with the same tokens as those of our target without speculation.

    Shown as "–" if none was compared.
    """

    num_equal: int
    num_compared: int

    def __str__(self) -> str:
        return f"{self.num_equal}/{self.num_compared}" if self.num_compared else NOTHING


@dataclass(frozen=True, slots=True)
class Spread:
    """A median between two quantiles, or between the smallest and the largest value."""

    low: float
    middle: float
    high: float

    def shown(self, num_decimals: int) -> str:
        """Return the median and, in brackets, the ends."""
        low, middle, high = (
            f"{value:.{num_decimals}f}" for value in (self.low, self.middle, self.high)
        )
        return f"{middle} ({low}–{high})"


@dataclass(frozen=True, slots=True)
class OneStream:
    """One arm with one stream; rates in tokens per second."""

    arm: str
    tokens_per_s: float
    of_a_prompt: Spread
    """Rates of single prompts: the median between the quartiles."""
    median_first_ms: float
    auto_over_it: Ratio | None
    same_way_over_it: Ratio | None
    """Rate of our arm with the same drafter ÷ the rate of this one."""
    answers_as_ours: Answers


@dataclass(frozen=True, slots=True)
class ManyStreams:
    """One arm with several streams at once: medians, smallest and largest over the repetitions."""

    arm: str
    num_streams: int
    tokens_per_s: Spread
    auto_over_it: Spread | None
    answers_as_ours: Answers


def one_stream_figures(found: Sequence[Measurement], arms: Sequence[ArmName]) -> list[OneStream]:
    """Return the rates over all prompts; arms without an answer to some prompt are left out."""
    figures = []
    for arm in arms:
        own = of(found, arm, 1)
        if _is_complete(found, arm, 1):
            first_ms = statistics.median(each.reply.answers[0].first_s for each in own) * 1000
            figures.append(
                OneStream(
                    arm.label,
                    rate(each.timed for each in own),
                    _quartiles([rate([each.timed]) for each in own]),
                    first_ms,
                    against(found, JUDGED, arm, 1),
                    against(found, _same_way(arm), arm, 1),
                    _equal(found, arm, 1),
                )
            )
    return figures


def one_stream_table(
    figures: Sequence[OneStream], arms: Sequence[ArmName], failures: Mapping[ArmName, str]
) -> str:
    """Return a table with a row for each arm, measured or not."""
    known = {each.arm: each for each in figures}
    rows = []
    for arm in arms:
        own = known.get(arm.label)
        if own is None:
            rows.append([arm.label, *[NOTHING] * 6, failures.get(arm, "not measured")])
            continue
        rows.append(
            [
                arm.label,
                f"{own.tokens_per_s:.1f}",
                own.of_a_prompt.shown(1),
                f"{own.median_first_ms:.0f}",
                str(own.auto_over_it or NOTHING),
                str(own.same_way_over_it or NOTHING),
                str(own.answers_as_ours),
                failures.get(arm, ""),
            ]
        )
    return markdown_table(ONE_STREAM_HEADER, rows)


def _is_complete(found: Sequence[Measurement], arm: ArmName, num_streams: int) -> bool:
    """Tell whether an arm has answered everything that others have, even if it failed later."""
    own, all_asked = (
        {each.question_id for each in answered if each.num_streams == num_streams}
        for answered in ((each for each in found if each.arm == arm), found)
    )
    return bool(own) and own == all_asked


def load_figures(
    found: Sequence[Measurement], arms: Sequence[ArmName], num_streams: int
) -> list[ManyStreams]:
    """Return the rates over the repetitions; arms without some repetition are left out."""
    figures = []
    judged = {each.question_id: rate([each.timed]) for each in of(found, JUDGED, num_streams)}
    for arm in arms:
        if _is_complete(found, arm, num_streams):
            own = of(found, arm, num_streams)
            rates = {each.question_id: rate([each.timed]) for each in own}
            ratios = [judged[name] / rates[name] for name in rates if name in judged]
            figures.append(
                ManyStreams(
                    arm.label,
                    num_streams,
                    _range(list(rates.values())),
                    _range(ratios) if ratios else None,
                    _equal(found, arm, num_streams),
                )
            )
    return figures


def load_table(
    figures: Sequence[ManyStreams],
    arms: Sequence[ArmName],
    failures: Mapping[ArmName, str],
    num_streams: int,
) -> str:
    """Return a table with a row for each arm at one number of streams, measured or not."""
    header = [f"{num_streams} streams", "tokens/s: median (range)", "auto ÷ it: median (range)"]
    header += ["answers as ours", "note"]
    known = {each.arm: each for each in figures if each.num_streams == num_streams}
    rows = []
    for arm in arms:
        own = known.get(arm.label)
        if own is None:
            rows.append([arm.label, *[NOTHING] * 3, failures.get(arm, "not measured")])
            continue
        rows.append(
            [
                arm.label,
                own.tokens_per_s.shown(1),
                own.auto_over_it.shown(2) if own.auto_over_it else NOTHING,
                str(own.answers_as_ours),
                failures.get(arm, ""),
            ]
        )
    return markdown_table(header, rows)


def of(found: Sequence[Measurement], arm: ArmName, num_streams: int) -> list[Measurement]:
    """Return one arm's measurements with this number of streams."""
    return [each for each in found if each.arm == arm and each.num_streams == num_streams]


def against(
    found: Sequence[Measurement], over: ArmName | None, under: ArmName, num_streams: int
) -> Ratio | None:
    """Return the ratio of two arms' rates over the same questions.

    None for an arm with itself, without `over`, or if the arms have not answered the same
    questions.
    """
    if over is None or over == under:
        return None
    one, other = (_timed(of(found, arm, num_streams)) for arm in (over, under))
    return ratio(one, other) if one and one.keys() == other.keys() else None


def _timed(measured: Sequence[Measurement]) -> dict[str, Timed]:
    return {each.question_id: each.timed for each in measured}


def _same_way(arm: ArmName) -> ArmName | None:
    """Return our arm with the same drafter as a peer's arm; None for our own arms."""
    if arm in OUR_ARMS or arm.way is Way.OTHER:
        return None
    return next(ours for ours in OUR_ARMS if ours.way is arm.way)


def _equal(found: Sequence[Measurement], arm: ArmName, num_streams: int) -> Answers:
    """Compare an arm's answers with those of our target without speculation."""
    wanted = {each.question_id: each.reply.answers for each in of(found, REFERENCE, num_streams)}
    pairs = [
        own.tokens == reference.tokens
        for each in of(found, arm, num_streams)
        if each.question_id in wanted
        for own, reference in zip(each.reply.answers, wanted[each.question_id], strict=True)
    ]
    return Answers(sum(pairs), len(pairs))


def _quartiles(values: Sequence[float]) -> Spread:
    if len(values) < 2:
        return _range(values)
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


def _range(values: Sequence[float]) -> Spread:
    return Spread(min(values), statistics.median(values), max(values))
