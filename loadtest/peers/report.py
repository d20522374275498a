"""The tables of `specdec bench peers`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

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


def one_stream_table(
    found: Sequence[Measurement], arms: Sequence[ArmName], failures: dict[ArmName, str]
) -> str:
    """Rates over all prompts, and each arm against ours on the same prompts."""
    rows = []
    for arm in arms:
        own = of(found, arm, 1)
        if not _is_complete(found, arm, 1):
            rows.append([arm.label, *[NOTHING] * 6, failures.get(arm, "not measured")])
            continue
        rates = [rate([each.timed]) for each in own]
        first_ms = statistics.median(each.reply.answers[0].first_s for each in own) * 1000
        rows.append(
            [
                arm.label,
                f"{rate(each.timed for each in own):.1f}",
                _spread(rates),
                f"{first_ms:.0f}",
                str(against(found, JUDGED, arm, 1) or NOTHING),
                str(against(found, _same_way(arm), arm, 1) or NOTHING),
                _equal(found, arm, 1),
                failures.get(arm, ""),
            ]
        )
    return markdown_table(ONE_STREAM_HEADER, rows)


def _is_complete(found: Sequence[Measurement], arm: ArmName, num_streams: int) -> bool:
    """It has answered all that others have, whatever became of it later."""
    own, all_asked = (
        {each.question_id for each in answered if each.num_streams == num_streams}
        for answered in ((each for each in found if each.arm == arm), found)
    )
    return bool(own) and own == all_asked


def load_table(
    found: Sequence[Measurement],
    arms: Sequence[ArmName],
    failures: dict[ArmName, str],
    num_streams: int,
) -> str:
    """Medians over the repetitions with the least and the most of them."""
    header = [f"{num_streams} streams", "tokens/s: median (range)", "auto ÷ it: median (range)"]
    header += ["answers as ours", "note"]
    rows = []
    for arm in arms:
        own = of(found, arm, num_streams)
        if not _is_complete(found, arm, num_streams):
            rows.append([arm.label, *[NOTHING] * 3, failures.get(arm, "not measured")])
            continue
        rates = {each.question_id: rate([each.timed]) for each in own}
        judged = {each.question_id: rate([each.timed]) for each in of(found, JUDGED, num_streams)}
        ratios = [judged[name] / rates[name] for name in rates if name in judged]
        rows.append(
            [
                arm.label,
                _range(list(rates.values()), 1),
                _range(ratios, 2),
                _equal(found, arm, num_streams),
                failures.get(arm, ""),
            ]
        )
    return markdown_table(header, rows)


def of(found: Sequence[Measurement], arm: ArmName, num_streams: int) -> list[Measurement]:
    """One arm's measurements."""
    return [each for each in found if each.arm == arm and each.num_streams == num_streams]


def against(
    found: Sequence[Measurement], over: ArmName | None, under: ArmName, num_streams: int
) -> Ratio | None:
    """Ratio of rates over the same questions; None for an arm with itself, or if one lacks some."""
    if over is None or over == under:
        return None
    one, other = (_timed(of(found, arm, num_streams)) for arm in (over, under))
    return ratio(one, other) if one and one.keys() == other.keys() else None


def _timed(measured: Sequence[Measurement]) -> dict[str, Timed]:
    return {each.question_id: each.timed for each in measured}


def _same_way(arm: ArmName) -> ArmName | None:
    """Ours that guesses as a peer's arm does; None for ours."""
    if arm in OUR_ARMS or arm.way is Way.OTHER:
        return None
    return next(ours for ours in OUR_ARMS if ours.way is arm.way)


def _equal(found: Sequence[Measurement], arm: ArmName, num_streams: int) -> str:
    """How many answers are token for token those of our target alone."""
    wanted = {each.question_id: each.reply.answers for each in of(found, REFERENCE, num_streams)}
    pairs = [
        own.tokens == reference.tokens
        for each in of(found, arm, num_streams)
        if each.question_id in wanted
        for own, reference in zip(each.reply.answers, wanted[each.question_id], strict=True)
    ]
    return f"{sum(pairs)}/{len(pairs)}" if pairs else NOTHING


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.1f} ({low:.1f}–{high:.1f})"


def _range(values: Sequence[float], num_decimals: int) -> str:
    if not values:
        return NOTHING
    low, middle, high = (
        f"{value:.{num_decimals}f}"
        for value in (min(values), statistics.median(values), max(values))
    )
    return f"{middle} ({low}–{high})"
