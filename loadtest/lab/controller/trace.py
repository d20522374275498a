"""The record of a real server in a file: acceptance by position, and times of rounds."""

from __future__ import annotations

import bisect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

TRACES = Path(__file__).parent / "traces"
DEFAULT_TRACE = TRACES / "default_pair.json"

PLAIN_ROUND, ROWS, OFF = "round", "rows", "off"
"""Kinds of costs without a drafter.

These are a round of the loop without draft tokens, one whose draft tokens cost no time, and a step
of a call that streams without speculation.
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """One greedy answer.

    The tuples have a number for each token, about a draft that is made just before it.
    """

    task: str
    num_prompt: int
    num_tokens: int
    num_copied: tuple[int, ...]
    """Draft tokens that prompt lookup proposes there."""
    num_accepted: Mapping[str, tuple[int, ...]]
    """Draft tokens that would be accepted there, by drafter; at most as many as were recorded."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of a round while every stream of the server does the same."""

    kind: str
    """A drafter, or one of PLAIN_ROUND, ROWS and OFF."""
    num_tokens: int
    """Draft tokens of the round."""
    num_streams: int
    quantiles_ms: tuple[float, ...]
    """Evenly spaced quantiles in ms, in ascending order, from 2 % to 98 %."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The record of one pair on one machine."""

    conditions: Mapping[str, str]
    answers: tuple[Answer, ...]
    costs: tuple[Cost, ...]

    def write(self, path: Path) -> None:
        """Write the trace as JSON, with a line for each answer and cost."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            '{"conditions": ' + json.dumps(dict(self.conditions)) + ', "costs": [',
            ",\n".join(json.dumps(asdict(each)) for each in self.costs),
            '], "answers": [',
            ",\n".join(json.dumps(asdict(each)) for each in self.answers),
            "]}",
        ]
        path.write_text("\n".join(lines) + "\n", "utf-8")

    @classmethod
    def read(cls, path: Path = DEFAULT_TRACE) -> Trace:
        """Read a trace. Raises OSError, ValueError or KeyError for a file that is no trace."""
        content = json.loads(path.read_text("utf-8"))
        answers = tuple(
            Answer(
                task=each["task"],
                num_prompt=each["num_prompt"],
                num_tokens=each["num_tokens"],
                num_copied=tuple(each["num_copied"]),
                num_accepted={name: tuple(counts) for name, counts in each["num_accepted"].items()},
            )
            for each in content["answers"]
        )
        costs = tuple(
            Cost(each["kind"], each["num_tokens"], each["num_streams"], tuple(each["quantiles_ms"]))
            for each in content["costs"]
        )
        return cls(content["conditions"], answers, costs)


class CostTable:
    """Times of rounds at any load and k, linear between the recorded values.

    Outside of what was recorded, the nearest value holds.
    """

    def __init__(self, costs: tuple[Cost, ...]) -> None:
        self._cells = {(each.kind, each.num_tokens, each.num_streams): each for each in costs}
        self._lengths: dict[str, list[int]] = {}
        self._loads = sorted({each.num_streams for each in costs})
        for each in costs:
            lengths = self._lengths.setdefault(each.kind, [])
            if each.num_tokens not in lengths:
                bisect.insort(lengths, each.num_tokens)

    def seconds(self, kind: str, num_tokens: int, num_streams: int, chance: float) -> float:
        """Return the seconds of one round; `chance` in [0, 1) is the quantile, 0 the fastest.

        Raises KeyError for a kind that was not recorded.
        """
        low, high, load_share = _between(self._loads, num_streams)
        return (1 - load_share) * self._at(kind, num_tokens, low, chance) + (
            load_share * self._at(kind, num_tokens, high, chance)
        )

    def mean_seconds(self, kind: str, num_tokens: int, num_streams: int) -> float:
        """Return the mean seconds of a round, over ten evenly spaced quantiles.

        The extremes are not among them.
        """
        chances = (tenth / 10 + 0.05 for tenth in range(10))
        return sum(self.seconds(kind, num_tokens, num_streams, each) for each in chances) / 10

    def _at(self, kind: str, num_tokens: int, num_streams: int, chance: float) -> float:
        low, high, share = _between(self._lengths[kind], num_tokens)
        cells = [self._cells[kind, length, num_streams] for length in (low, high)]
        return (1 - share) * _quantile(cells[0], chance) + share * _quantile(cells[1], chance)


def _quantile(cost: Cost, chance: float) -> float:
    position = chance * (len(cost.quantiles_ms) - 1)
    low = int(position)
    high = min(low + 1, len(cost.quantiles_ms) - 1)
    share = position - low
    return ((1 - share) * cost.quantiles_ms[low] + share * cost.quantiles_ms[high]) / 1000


def _between(known: list[int], wanted: int) -> tuple[int, int, float]:
    """Return the known neighbours of a value, and its distance from the lower one (0 to 1).

    For a value outside, both are the nearest known one.
    """
    if wanted <= known[0] or len(known) == 1:
        return known[0], known[0], 0.0
    if wanted >= known[-1]:
        return known[-1], known[-1], 0.0
    position = bisect.bisect_left(known, wanted)
    low, high = known[position - 1], known[position]
    return low, high, (wanted - low) / (high - low)
