"""The figures and tables of `specdec bench peers`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.loadtest.kit.ratios import Ratio, rate, ratio
from specdec.loadtest.kit.results import markdown_table
from specdec.loadtest.lab.peers.catalogue import COMPARED, OUR_ARMS, REFERENCE, Drafting, PeerArm
from specdec.loadtest.lab.peers.measuring import PeerMeasurement, PeerRun

NOTHING = "–"
ONE_STREAM = ["tokens/s", "median TTFT, ms", "auto ÷ it (95 %)"]
ONE_STREAM += ["ours with the same draft ÷ it (95 %)", "answers as ours"]
MANY_STREAMS = ["tokens/s: median (range)", "auto ÷ it: median (range)", "answers as ours"]
"""Columns of the tables, without name and note."""

Found = Sequence[PeerMeasurement]
Answered = Mapping[str, PeerMeasurement]
"""The measurements of one arm at one load, by question."""


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

    @classmethod
    def over(cls, values: Iterable[float]) -> Spread:
        """Return the spread of some values."""
        known = sorted(values)
        return cls(known[0], statistics.median(known), known[-1])

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
        """Return the cells of ONE_STREAM."""
        gains = (str(each or NOTHING) for each in (self.auto_over_it, self.same_drafting_over_it))
        speed = [f"{self.tokens_per_s:.1f}", f"{self.median_first_ms:.0f}"]
        return [*speed, *gains, str(self.answers_as_ours)]


@dataclass(frozen=True, slots=True)
class ManyStreams:
    """The figures of one arm with several streams: medians and ranges over the repetitions."""

    arm: str
    num_streams: int
    tokens_per_s: Spread
    auto_over_it: Spread | None
    answers_as_ours: Answers

    def cells(self) -> list[str]:
        """Return the cells of MANY_STREAMS."""
        gain = self.auto_over_it.shown(2) if self.auto_over_it else NOTHING
        return [self.tokens_per_s.shown(1), gain, str(self.answers_as_ours)]


def figures_and_tables(
    engine_run: PeerRun, arms: Sequence[PeerArm], loads: Sequence[int]
) -> tuple[dict[str, Any], str]:
    """Return the figures and the tables of all arms, for each number of streams in `loads`."""
    failures, versions = engine_run.failures, engine_run.versions
    known = {count: figures_of(engine_run.measurements, arms, count) for count in loads}
    tables = [table(own, arms, failures, count) for count, own in known.items()]
    figures = {
        "versions": versions,
        "failures": {arm.label: reason for arm, reason in failures.items()},
        "one_stream": known.get(1, []),
        "many_streams": [each for count, own in known.items() if count > 1 for each in own],
    }
    return figures, "\n\n".join([*tables, "; ".join(versions.values()) + "."])


def figures_of(
    found: Found, arms: Sequence[PeerArm], num_streams: int
) -> list[OneStream | ManyStreams]:
    """Return the figures of the arms that have answered every question with this many streams.

    An arm that failed later has figures too.
    """
    asked = {each.question_id for each in found if each.num_streams == num_streams}
    answered = {arm: answers_of(found, arm, num_streams) for arm in arms}
    auto = answers_of(found, COMPARED, num_streams)
    reference = answers_of(found, REFERENCE, num_streams)
    figures: list[OneStream | ManyStreams] = []
    for arm, own in answered.items():
        if not own or own.keys() != asked:
            continue
        answers = answers_as(reference, own)
        if num_streams == 1:
            first_s = statistics.median(each.reply.answers[0].first_s for each in own.values())
            speed = rate(each.timed for each in own.values())
            alike = _same_drafting(arm)
            same = ratio_of(answers_of(found, alike, 1), own) if alike else None
            gain = ratio_of(auto, own) if arm != COMPARED else None
            figures.append(OneStream(arm.label, speed, first_s * 1000, gain, same, answers))
        else:
            rates = {name: rate([each.timed]) for name, each in own.items()}
            gains = [rate([auto[name].timed]) / rates[name] for name in rates if name in auto]
            spreads = Spread.over(rates.values()), Spread.over(gains) if gains else None
            figures.append(ManyStreams(arm.label, num_streams, *spreads, answers))
    return figures


def table(
    figures: Sequence[OneStream | ManyStreams],
    arms: Sequence[PeerArm],
    failures: Mapping[PeerArm, str],
    num_streams: int,
) -> str:
    """Return a table with a row for each arm that is asked with this many streams."""
    columns = ONE_STREAM if num_streams == 1 else MANY_STREAMS
    known = {each.arm: each for each in figures}
    rows = []
    for arm in (arm for arm in arms if arm.has_load or num_streams == 1):
        own = known.get(arm.label)
        cells = own.cells() if own else [NOTHING] * len(columns)
        rows.append([arm.label, *cells, failures.get(arm, "" if own else "not measured")])
    title = "one stream" if num_streams == 1 else f"{num_streams} streams"
    return markdown_table([title, *columns, "note"], rows)


def answers_of(found: Found, arm: PeerArm, num_streams: int) -> dict[str, PeerMeasurement]:
    """Return one arm's measurements with this number of streams, by question."""
    return {
        each.question_id: each
        for each in found
        if each.arm == arm and each.num_streams == num_streams
    }


def ratio_of(over: Answered, under: Answered) -> Ratio | None:
    """Return the ratio of two arms' rates; None if they have not answered the same questions."""
    if not over or over.keys() != under.keys():
        return None
    one, other = ({name: each.timed for name, each in own.items()} for own in (over, under))
    return ratio(one, other)


def _same_drafting(arm: PeerArm) -> PeerArm | None:
    """Return our arm with the same kind of draft as a peer's arm; None for our own arms."""
    if arm in OUR_ARMS or arm.drafting is Drafting.OTHER:
        return None
    return next(ours for ours in OUR_ARMS if ours.drafting is arm.drafting)


def answers_as(reference: Answered, own: Answered) -> Answers:
    """Compare an arm's answers with those of our target without speculation."""
    pairs = [
        answer.tokens == wanted.tokens
        for name, each in own.items()
        if name in reference
        for answer, wanted in zip(each.reply.answers, reference[name].reply.answers, strict=True)
    ]
    return Answers(sum(pairs), len(pairs))
