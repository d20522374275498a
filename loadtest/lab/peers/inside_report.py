"""The figures and tables of `specdec bench inside`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec.loadtest.kit.ratios import Ratio, rate
from specdec.loadtest.kit.results import markdown_table
from specdec.loadtest.lab.peers.catalogue import PeerArm
from specdec.loadtest.lab.peers.measuring import PeerRun
from specdec.loadtest.lab.peers.report import Answered, answers_as, answers_of, ratio_of

COLUMNS = [
    "tokens/s",
    "median TTFT, ms",
    "÷ vLLM's plain (95 %)",
    "÷ vLLM's best (95 %)",
    "÷ off of ours (95 %)",
    "answers as vLLM's plain",
]


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """The figures of one arm with one number of streams; rates are in tokens per second."""

    arm: str
    num_streams: int
    tokens_per_s: float
    median_first_ms: float
    over_plain: Ratio | None
    over_best: Ratio | None
    """Rate ÷ that of the fastest arm of vLLM's own."""
    over_off: Ratio | None
    """Rate ÷ that of our server without speculation."""
    num_as_plain: int
    """Answers with the same tokens as those of vLLM's plain server."""
    num_compared: int

    def cells(self) -> list[str]:
        """Return the cells of the row."""
        ratios = (self.over_plain, self.over_best, self.over_off)
        return [
            self.arm,
            f"{self.tokens_per_s:.1f}",
            f"{self.median_first_ms:.0f}",
            *("–" if each is None else str(each) for each in ratios),
            f"{self.num_as_plain}/{self.num_compared}",
        ]


def figures_and_tables(
    run: PeerRun, ours: Sequence[PeerArm], theirs: Sequence[PeerArm], loads: Sequence[int]
) -> tuple[dict[str, Any], str]:
    """Return the figures and a table for each number of streams in `loads`."""
    found = {count: _figures(run, ours, theirs, count) for count in loads}
    tables = [
        markdown_table([f"{count} streams", *COLUMNS], [each.cells() for each in figures])
        for count, figures in found.items()
    ]
    facts = {
        "versions": run.versions,
        "arms": [each for figures in found.values() for each in figures],
    }
    return facts, "\n\n".join([*tables, "; ".join(run.versions.values()) + "."])


def _figures(
    run: PeerRun, ours: Sequence[PeerArm], theirs: Sequence[PeerArm], num_streams: int
) -> list[ArmFigures]:
    answered: dict[PeerArm, Answered] = {
        arm: found
        for arm in (*ours, *theirs)
        if (found := answers_of(run.measurements, arm, num_streams))
    }
    plain, off = _of_mode(answered, theirs, "plain"), _of_mode(answered, ours, "off")
    rates = {arm: rate(each.timed for each in found.values()) for arm, found in answered.items()}
    fastest = max((arm for arm in theirs if arm in rates), key=rates.__getitem__, default=None)
    best: Answered = {} if fastest is None else answered[fastest]
    figures = []
    for arm, own in answered.items():
        first_s = [each.first_s for one in own.values() for each in one.reply.answers]
        same = answers_as(plain, own)
        figures.append(
            ArmFigures(
                arm.label,
                num_streams,
                rates[arm],
                1000 * statistics.median(first_s),
                ratio_of(own, plain),
                ratio_of(own, best),
                ratio_of(own, off),
                same.num_equal,
                same.num_compared,
            )
        )
    return figures


def _of_mode(answered: Mapping[PeerArm, Answered], arms: Sequence[PeerArm], mode: str) -> Answered:
    arm = next((each for each in arms if each.mode == mode), None)
    return answered.get(arm, {}) if arm is not None else {}
