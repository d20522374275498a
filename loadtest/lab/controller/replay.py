"""`specdec bench replay`: run the real controller on recorded answers, on a simulated clock.

Answers and costs are those of a real server (`specdec bench record`); only the choices differ.
Some scenarios are steady: each task alone, all tasks together at several loads, and drafts that are
never accepted. Others change: the mix of tasks under one label, the load, a draft that goes stale.
The controller is compared with every fixed choice, with speculation off, and with an oracle. The
oracle knows beforehand which fixed choice will be best for each task in each phase.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from specdec.loadtest.kit.options import bench_parser, finish
from specdec.loadtest.kit.results import table_of
from specdec.loadtest.lab.controller.default_pair import FIXED
from specdec.loadtest.lab.controller.policies import Controlled, Fixed, Oracle
from specdec.loadtest.lab.controller.scenarios import Scenario, scenarios
from specdec.loadtest.lab.controller.score import Score
from specdec.loadtest.lab.controller.trace import DEFAULT_TRACE, CostTable, Trace
from specdec.loadtest.lab.controller.world import Phase, Policy, World
from specdec.steering.choices import OFF_CHOICE, Choice
from specdec.steering.settings import ControlSettings

STEADY_FROM = 0.3
"""Share of a phase's tokens after which the phase counts as steady."""

ORACLE_GOAL, FIXED_GOAL, OFF_GOAL = 0.95, 0.98, 0.97

RECOVERED, WINDOW_TOKENS = 0.95, 400
"""Recovery: this share of the oracle's pace, over a window of WINDOW_TOKENS tokens."""


@dataclass(frozen=True, slots=True)
class Row:
    """The results of one phase.

    Ratios compare runs with the same seed. Over several seeds, they are medians.
    """

    scenario: str
    phase: str
    num_streams: int
    off: float
    """Tokens per second without speculation."""
    best_fixed: str
    fixed_to_off: float
    """Speed of the best fixed choice ÷ speed without speculation, both steady."""
    auto_to_oracle: float
    auto_to_fixed: float
    """Like `auto_to_oracle`, a ratio of steady speeds."""
    auto_to_off: float
    """Ratio of speeds over the whole phase."""
    regret: float
    """Time of the controller ÷ the oracle's, minus 1, over the whole phase; a mean over seeds."""
    num_rounds_to_recover: int | None
    """Rounds until the pace was RECOVERED, steps without speculation included.

    None if it never was. Over several seeds this is the largest number.
    """

    @property
    def goals_missed(self) -> tuple[str, ...]:
        missed = (
            ("oracle", self.auto_to_oracle < ORACLE_GOAL),
            ("fixed", self.auto_to_fixed < FIXED_GOAL),
            ("off", self.auto_to_off < OFF_GOAL),
        )
        return tuple(name for name, is_missed in missed if is_missed)


def main(argv: list[str]) -> int:
    """Replay and report; return 1 if a goal was missed, else 0."""
    parser = bench_parser("replay", __doc__, has_models=False)
    parser.add_argument("--trace", type=Path, default=DEFAULT_TRACE, help="file of `record`")
    parser.add_argument("--tokens", type=int, default=24000, help="of a phase with one stream")
    parser.add_argument("--only", default="", metavar="TEXT", help="scenarios with TEXT in a name")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each scenario")
    arguments = parser.parse_args(argv)
    trace = Trace.read(arguments.trace)
    chosen = [each for each in scenarios(trace, arguments.tokens) if arguments.only in each.name]
    rows = replay(arguments.trace, chosen, range(arguments.seeds), arguments.tokens)
    regret = statistics.mean(each.regret for each in rows)
    facts = {"recorded": dict(trace.conditions), "mean_regret": regret, "rows": rows}
    missed = [
        f"{each.scenario} / {each.phase} misses {', '.join(each.goals_missed)}"
        for each in rows
        if each.goals_missed
    ]
    text = f"{table(rows)}\n\nMean regret of the {len(rows)} phases: {regret:.2%}."
    return finish(arguments, argv, facts, text, faults=missed)


def replay(
    trace: Path, chosen: Sequence[Scenario], seeds: Sequence[int], num_tokens: int
) -> list[Row]:
    """Return one row for each phase, with medians over the seeds. Uses all cores."""
    rows: list[Row] = []
    with ProcessPoolExecutor() as pool:
        begun = [
            [pool.submit(_once, trace, num_tokens, scenario, seed) for seed in seeds]
            for scenario in chosen
        ]
        for scenario, runs in zip(chosen, begun, strict=True):
            found = [each.result() for each in runs]
            rows += [_median(own) for own in zip(*found, strict=True)]
            print(f"{scenario.name}: done", file=sys.stderr)
    return rows


class _Known:
    """The recorded answers and costs, and the best fixed choice for each task and phase."""

    def __init__(self, trace: Trace, costs: CostTable, num_tokens: int) -> None:
        self._trace, self._costs, self._num_tokens = trace, costs, num_tokens
        self._best: dict[tuple[str, int, tuple[tuple[str, float], ...]], Choice] = {}

    def world(self, seed: int) -> World:
        return World(self._trace.answers, self._costs, seed)

    def alone(self, phase: Phase, policy: Policy, seed: int) -> Score:
        """Return the score of a phase in a world of its own."""
        return self.world(seed).run(phase, policy)

    def oracle(self, phase: Phase) -> Oracle:
        return Oracle({task: self._best_of(task, phase) for task in phase.tasks})

    def _best_of(self, task: str, phase: Phase) -> Choice:
        key = task, phase.num_streams, tuple(sorted(phase.stale.items()))
        if key not in self._best:
            own = replace(phase, tasks=(task,), num_tokens=self._num_tokens, num_slow_tokens=0)
            speeds = {choice: self.alone(own, Fixed(choice), 0).tokens_per_s for choice in FIXED}
            self._best[key] = max(FIXED, key=lambda choice: speeds[choice])
        return self._best[key]


@cache
def _known(path: Path, num_tokens: int) -> _Known:
    """Return the recorded data; each process reads it once."""
    trace = Trace.read(path)
    return _Known(trace, CostTable(trace.costs), num_tokens)


def _once(path: Path, num_tokens: int, scenario: Scenario, seed: int) -> list[Row]:
    known = _known(path, num_tokens)
    world = known.world(seed)
    auto = Controlled(ControlSettings(), seed, lambda: world.now_s)
    rows = []
    if scenario.before is not None:
        world.run(scenario.before, auto)
    for phase in scenario.phases:
        first = round(STEADY_FROM * phase.num_tokens)
        fixed = {choice: known.alone(phase, Fixed(choice), seed) for choice in FIXED}
        best = max(fixed, key=lambda choice: fixed[choice].pace(first))
        oracle = known.alone(phase, known.oracle(phase), seed)
        auto.controller.renew(phase.swapped)
        own, off = world.run(phase, auto), fixed[OFF_CHOICE]
        rows.append(
            Row(
                scenario=scenario.name,
                phase=phase.name,
                num_streams=phase.num_streams,
                off=off.tokens_per_s,
                best_fixed=f"{best.drafter}:{best.num_tokens}" if best.num_tokens else best.drafter,
                fixed_to_off=fixed[best].pace(first) / off.pace(first),
                auto_to_oracle=own.pace(first) / oracle.pace(first),
                auto_to_fixed=own.pace(first) / fixed[best].pace(first),
                auto_to_off=own.tokens_per_s / off.tokens_per_s,
                regret=oracle.tokens_per_s / own.tokens_per_s - 1,
                num_rounds_to_recover=_rounds_to_recover(own, oracle, phase.num_tokens),
            )
        )
    return rows


def _rounds_to_recover(own: Score, oracle: Score, num_tokens: int) -> int | None:
    """Return the rounds of all streams before the first window with RECOVERED of the oracle's pace.

    None if there is no such window.
    """
    for first in range(0, num_tokens - WINDOW_TOKENS + 1, WINDOW_TOKENS):
        window = first, first + WINDOW_TOKENS
        if own.pace(*window) >= RECOVERED * oracle.pace(*window):
            return own.num_rounds_for(first)
    return None


def _median(runs: Sequence[Row]) -> Row:
    recovered = [each.num_rounds_to_recover for each in runs]
    known = [each for each in recovered if each is not None]
    fixed = [each.best_fixed for each in runs]
    ratios = ("off", "fixed_to_off", "auto_to_oracle", "auto_to_fixed", "auto_to_off")
    return replace(
        runs[0],
        **{name: statistics.median(getattr(each, name) for each in runs) for name in ratios},
        best_fixed=max(set(fixed), key=fixed.count),
        regret=statistics.mean(each.regret for each in runs),
        num_rounds_to_recover=max(known) if len(known) == len(recovered) else None,
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    return table_of(
        {
            "requests": lambda row: (
                row.scenario if row.scenario.endswith(row.phase) else f"{row.scenario}: {row.phase}"
            ),
            "streams": lambda row: str(row.num_streams),
            "off, tokens/s": lambda row: f"{row.off:.1f}",
            "best fixed": lambda row: f"{row.best_fixed} ({row.fixed_to_off:.2f})",
            "auto ÷ oracle, steady": lambda row: f"{row.auto_to_oracle:.3f}",
            "auto ÷ best fixed, steady": lambda row: f"{row.auto_to_fixed:.3f}",
            "auto ÷ off, all": lambda row: f"{row.auto_to_off:.3f}",
            "regret, all": lambda row: f"{row.regret:.2%}",
            "rounds until 95 % of the oracle": lambda row: (
                "–" if row.num_rounds_to_recover is None else str(row.num_rounds_to_recover)
            ),
        },
        rows,
    )
