"""The record of a real server in a file: acceptance by position, and times of rounds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.loadtest.kit.results import in_lines, plain

Quantiles = npt.NDArray[np.float64]

DEFAULT_TRACE = Path(__file__).parent / "traces" / "default_pair.json"

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
        path.write_text(in_lines(plain(self), depth=2) + "\n", "utf-8")

    @classmethod
    def read(cls, path: Path = DEFAULT_TRACE) -> Trace:
        """Read a trace. Raises OSError, ValueError, KeyError or TypeError if it is none."""
        content = json.loads(path.read_text("utf-8"))
        answers = tuple(Answer(**_with_tuples(each)) for each in content["answers"])
        costs = tuple(Cost(**_with_tuples(each)) for each in content["costs"])
        return cls(content["conditions"], answers, costs)


def _with_tuples(value: Any) -> Any:
    """Return a JSON value with tuples in place of its lists."""
    if isinstance(value, dict):
        return {name: _with_tuples(each) for name, each in value.items()}
    return tuple(value) if isinstance(value, list) else value


class CostTable:
    """Times of rounds at any load and k, linear between the recorded values.

    Outside of what was recorded, the nearest value holds.
    """

    def __init__(self, costs: tuple[Cost, ...]) -> None:
        self._recorded_ms: dict[str, dict[int, dict[int, tuple[float, ...]]]] = {}
        """The quantiles by kind, draft tokens and streams."""
        for each in costs:
            lengths = self._recorded_ms.setdefault(each.kind, {})
            lengths.setdefault(each.num_tokens, {})[each.num_streams] = each.quantiles_ms
        self._known: dict[tuple[str, int, int], tuple[Quantiles, Quantiles]] = {}
        """Chances and quantiles in ms that were interpolated before."""

    def seconds(self, kind: str, num_tokens: int, num_streams: int, chance: float) -> float:
        """Return the seconds of one round; `chance` in [0, 1) is the quantile, 0 the fastest.

        Raises KeyError for a kind that was not recorded.
        """
        key = kind, num_tokens, num_streams
        if key not in self._known:
            lengths = self._recorded_ms[kind].items()
            rows = {length: _interpolated(loads, num_streams) for length, loads in lengths}
            quantiles_ms = _interpolated(rows, num_tokens)
            self._known[key] = np.linspace(0.0, 1.0, len(quantiles_ms)), quantiles_ms
        return float(np.interp(chance, *self._known[key])) / 1000

    def mean_seconds(self, kind: str, num_tokens: int, num_streams: int) -> float:
        """Return the mean seconds of a round, over ten evenly spaced quantiles.

        The extremes are not among them.
        """
        chances = (tenth / 10 + 0.05 for tenth in range(10))
        return sum(self.seconds(kind, num_tokens, num_streams, each) for each in chances) / 10


def _interpolated(rows: Mapping[int, npt.ArrayLike], wanted: int) -> Quantiles:
    """Return the row of `wanted`, linear between its neighbours; outside, the nearest row."""
    known = sorted(rows)
    columns = np.asarray([rows[each] for each in known]).T
    return np.asarray([np.interp(wanted, known, column) for column in columns])
