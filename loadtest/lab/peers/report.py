"""The figures and tables of `specdec bench peers`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.loadtest.kit.ratios import Ratio, rate, ratio
from specdec.loadtest.kit.results import markdown_table
from specdec.loadtest.lab.peers.catalogue import COMPARED, OUR_ARMS, REFERENCE, ArmName, Drafting
from specdec.loadtest.lab.peers.measuring import PeerMeasurement, PeerRun

NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers with the same tokens as those of our target without speculation."""

    num_equal: int
    num_compared: int

    def __str__(self) -> str:
        return f"{self.num_equal}/{self.num_compared}" if self.num_compared else NOTHING


@dataclass(frozen=True, slots=True)
class Spread:
    """A median between the smallest and the largest value."""

    low: float
    middle: float
    high: float

    def shown(self, num_decimals: int) -> str:
        """Return the median and, in brackets, the ends."""
        n = num_decimals
        return f"{self.middle:.{n}f} ({self.low:.{n}f}–{self.high:.{n}f})"


@dataclass(frozen=True, slots=True)
class OneStream:
    """The figures of one arm with one stream; rates are in tokens per second."""

    arm: str
    tokens_per_s: float
    median_first_ms: float
    auto_over_it: Ratio | None
    same_drafting_over_it: Ratio | None
    """Rate of our arm with the same kind of draft ÷ this rate."""
    answers_as_ours: Answers

    def cells(self) -> list[str]:
        """Return the cells of its row, without name and note."""
        return [
            f"{self.tokens_per_s:.1f}",
            f"{self.median_first_ms:.0f}",
            str(self.auto_over_it or NOTHING),
            str(self.same_drafting_over_it or NOTHING),
            str(self.answers_as_ours),
        ]


@dataclass(frozen=True, slots=True)
class ManyStreams:
    """The figures of one arm with several streams: medians and ranges over the repetitions."""

    arm: str
    num_streams: int
    tokens_per_s: Spread
    auto_over_it: Spread | None
    answers_as_ours: Answers

    def cells(self) -> list[str]:
        """Return the cells of its row, without name and note."""
        gain = self.auto_over_it.shown(2) if self.auto_over_it else NOTHING
        return [self.tokens_per_s.shown(1), gain, str(self.answers_as_ours)]


def figures_and_tables(
    engine_run: PeerRun, arms: Sequence[ArmName], loads: Sequence[int]
) -> tuple[dict[str, Any], str]:
    """Return the figures and the tables of all arms, for each number of streams in `loads`."""
    found, failures = engine_run.measurements, engine_run.failures
    loaded, versions = [arm for arm in arms if arm.has_load], engine_run.versions
    alone = one_stream_figures(found, arms)
    together = {count: load_figures(found, arms, count) for count in loads if count > 1}
    tables = [one_stream_table(alone, arms, failures)] if 1 in loads else []
    tables += [load_table(own, loaded, failures, count) for count, own in together.items()]
    figures = {
        "versions": versions,
        "failures": {arm.label: reason for arm, reason in failures.items()},
        "one_stream": alone,
        "many_streams": [each for own in together.values() for each in own],
    }
    return figures, "\n\n".join([*tables, "; ".join(versions.values()) + "."])


def one_stream_figures(
    found: Sequence[PeerMeasurement], arms: Sequence[ArmName]
) -> list[OneStream]:
    """Return the figures of the arms that have answered every prompt."""
    figures = []
    for arm in (arm for arm in arms if _is_complete(found, arm, 1)):
        own = answers_of(found, arm, 1)
        first_ms = statistics.median(each.reply.answers[0].first_s for each in own) * 1000
        figures.append(
            OneStream(
                arm.label,
                rate(each.timed for each in own),
                first_ms,
                ratio_of(found, COMPARED, arm, 1),
                ratio_of(found, _same_drafting(arm), arm, 1),
                _equal(found, arm, 1),
            )
        )
    return figures


def load_figures(
    found: Sequence[PeerMeasurement], arms: Sequence[ArmName], num_streams: int
) -> list[ManyStreams]:
    """Return the figures of the arms that have answered every repetition."""
    figures = []
    auto = {
        each.question_id: rate([each.timed]) for each in answers_of(found, COMPARED, num_streams)
    }
    for arm in (arm for arm in arms if _is_complete(found, arm, num_streams)):
        own = answers_of(found, arm, num_streams)
        rates = {each.question_id: rate([each.timed]) for each in own}
        ratios = [auto[name] / rates[name] for name in rates if name in auto]
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


def one_stream_table(
    figures: Sequence[OneStream], arms: Sequence[ArmName], failures: Mapping[ArmName, str]
) -> str:
    """Return a table with a row for each arm, measured or not."""
    header = ["one stream", "tokens/s", "median TTFT, ms"]
    header += ["auto ÷ it (95 %)", "ours with the same draft ÷ it (95 %)", "answers as ours"]
    return _table(header, figures, arms, failures)


def load_table(
    figures: Sequence[ManyStreams],
    arms: Sequence[ArmName],
    failures: Mapping[ArmName, str],
    num_streams: int,
) -> str:
    """Return a table with a row for each arm at one number of streams, measured or not."""
    header = [f"{num_streams} streams", "tokens/s: median (range)", "auto ÷ it: median (range)"]
    own = [each for each in figures if each.num_streams == num_streams]
    return _table([*header, "answers as ours"], own, arms, failures)


def _table(
    header: list[str],
    figures: Sequence[OneStream | ManyStreams],
    arms: Sequence[ArmName],
    failures: Mapping[ArmName, str],
) -> str:
    known = {each.arm: each for each in figures}
    rows = []
    for arm in arms:
        own = known.get(arm.label)
        cells = own.cells() if own else [NOTHING] * (len(header) - 1)
        note = failures.get(arm, "" if own else "not measured")
        rows.append([arm.label, *cells, note])
    return markdown_table([*header, "note"], rows)


def answers_of(
    found: Sequence[PeerMeasurement], arm: ArmName, num_streams: int
) -> list[PeerMeasurement]:
    """Return one arm's measurements with this number of streams."""
    return [each for each in found if each.arm == arm and each.num_streams == num_streams]


def ratio_of(
    found: Sequence[PeerMeasurement], over: ArmName | None, under: ArmName, num_streams: int
) -> Ratio | None:
    """Return the ratio of two arms' rates over the same questions.

    None for an arm with itself, without `over`, or if the arms have not answered the same
    questions.
    """
    if over is None or over == under:
        return None
    one, other = (
        {each.question_id: each.timed for each in answers_of(found, arm, num_streams)}
        for arm in (over, under)
    )
    return ratio(one, other) if one and one.keys() == other.keys() else None


def _is_complete(found: Sequence[PeerMeasurement], arm: ArmName, num_streams: int) -> bool:
    """Tell whether an arm has answered everything that others have, even if it failed later."""
    asked = {each.question_id for each in found if each.num_streams == num_streams}
    own = {each.question_id for each in answers_of(found, arm, num_streams)}
    return bool(own) and own == asked


def _same_drafting(arm: ArmName) -> ArmName | None:
    """Return our arm with the same kind of draft as a peer's arm; None for our own arms."""
    if arm in OUR_ARMS or arm.drafting is Drafting.OTHER:
        return None
    return next(ours for ours in OUR_ARMS if ours.drafting is arm.drafting)


def _equal(found: Sequence[PeerMeasurement], arm: ArmName, num_streams: int) -> Answers:
    """Compare an arm's answers with those of our target without speculation."""
    wanted = {
        each.question_id: each.reply.answers for each in answers_of(found, REFERENCE, num_streams)
    }
    pairs = [
        own.tokens == reference.tokens
        for each in answers_of(found, arm, num_streams)
        if each.question_id in wanted
        for own, reference in zip(each.reply.answers, wanted[each.question_id], strict=True)
    ]
    return Answers(sum(pairs), len(pairs))


def _range(values: Sequence[float]) -> Spread:
    return Spread(min(values), statistics.median(values), max(values))
