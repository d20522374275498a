"""`specdec bench replay`: run the real controller on recorded answers, on a simulated clock.

Answers and costs are those of a real server (`specdec bench record`); only the choices differ.
Some scenarios are steady: each task alone, all tasks together at several loads, and drafts that are
never accepted. Others change: the mix of tasks under one label, the load, a draft that goes stale.
The controller is compared with every fixed choice, with speculation off, and with an oracle. The
oracle knows beforehand which fixed choice will be best for each task in each phase.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.replay.policies import FIXED, Controlled, Fixed, Oracle
from loadtest.replay.trace import DEFAULT_TRACE, CostTable, Trace
from loadtest.replay.world import Phase, Policy, Score, World
from specdec.control.choices import OFF_CHOICE, Choice
from specdec.control.settings import ControlSettings

STEADY_FROM = 0.3
"""Share of a phase's tokens after which the phase counts as steady."""

HOPELESS = {"draft": 1.0, "eagle3": 1.0, "eagle3_tree": 1.0}
STALE = {"eagle3": 0.8, "eagle3_tree": 0.8}

ORACLE_GOAL, FIXED_GOAL, OFF_GOAL = 0.95, 0.98, 0.97

RECOVERED, WINDOW_TOKENS = 0.95, 400
"""Recovery: this share of the oracle's pace, over a window of WINDOW_TOKENS tokens."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Phases one after another, under one controller."""

    name: str
    phases: tuple[Phase, ...]


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
    arguments = _parser().parse_args(argv)
    trace = Trace.read(arguments.trace)
    chosen = [each for each in scenarios(trace, arguments.tokens) if arguments.only in each.name]
    rows = replay(arguments.trace, chosen, range(arguments.seeds), arguments.tokens)
    facts = {
        "conditions": conditions(command_line("replay", argv)),
        "recorded": dict(trace.conditions),
        "rows": [asdict(each) for each in rows],
    }
    write_result(arguments.name, arguments.out, facts, table(rows))
    missed = [each for each in rows if each.goals_missed]
    for each in missed:
        goals = ", ".join(each.goals_missed)
        print(f"MISSED {each.scenario} / {each.phase}: {goals}", file=sys.stderr)
    return 1 if missed else 0


def scenarios(trace: Trace, num_tokens: int) -> tuple[Scenario, ...]:
    """Return all scenarios.

    A phase with fewer than 16 streams has `num_tokens` tokens; with more, it is longer in
    proportion.
    """
    tasks = tuple(dict.fromkeys(each.task for each in trace.answers))

    def phase(name: str, num_streams: int = 1, **more: object) -> Phase:
        total = num_tokens * max(1, num_streams // 8)
        return replace(Phase(name, total, num_streams, tasks), **more)  # type: ignore[arg-type]

    alone = [Scenario(f"task {task}", (phase(task, tasks=(task,)),)) for task in tasks]
    together = [
        Scenario(f"all tasks, {load} streams", (phase(f"all at {load}", load),))
        for load in (1, 4, 16, 48)
    ]
    first, second = tasks[: len(tasks) // 2], tasks[len(tasks) // 2 :]
    return (
        *alone,
        *together,
        Scenario("hopeless drafts", (phase("hopeless", stale=HOPELESS),)),
        Scenario(
            "the mix shifts behind one label",
            (
                phase("one half", tasks=first, label="default"),
                phase("other half", tasks=second, label="default"),
                phase("one half again", tasks=first, label="default"),
            ),
        ),
        Scenario(
            "load ramp",
            tuple(
                phase(f"{number}: {load} streams", load)
                for number, load in enumerate((1, 4, 16, 48, 16, 4, 1), start=1)
            ),
        ),
        Scenario(
            "a draft goes stale",
            (phase("fresh"), phase("stale", stale=STALE), phase("refreshed", swapped=tuple(STALE))),
        ),
    )


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
            own = replace(phase, tasks=(task,), num_tokens=self._num_tokens)
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
                best_fixed=f"{best.lead}:{best.num_tokens}" if best.num_tokens else best.lead,
                fixed_to_off=fixed[best].pace(first) / off.pace(first),
                auto_to_oracle=own.pace(first) / oracle.pace(first),
                auto_to_fixed=own.pace(first) / fixed[best].pace(first),
                auto_to_off=own.tokens_per_s / off.tokens_per_s,
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
    return replace(
        runs[0],
        off=statistics.median(each.off for each in runs),
        best_fixed=max(set(fixed), key=fixed.count),
        fixed_to_off=statistics.median(each.fixed_to_off for each in runs),
        auto_to_oracle=statistics.median(each.auto_to_oracle for each in runs),
        auto_to_fixed=statistics.median(each.auto_to_fixed for each in runs),
        auto_to_off=statistics.median(each.auto_to_off for each in runs),
        num_rounds_to_recover=max(known) if len(known) == len(recovered) else None,
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    header = [
        "traffic",
        "streams",
        "off, tokens/s",
        "best fixed",
        "auto ÷ oracle, steady",
        "auto ÷ best fixed, steady",
        "auto ÷ off, all",
        "rounds until 95 % of the oracle",
    ]
    lines = [
        [
            each.scenario
            if each.scenario.endswith(each.phase)
            else f"{each.scenario}: {each.phase}",
            str(each.num_streams),
            f"{each.off:.1f}",
            f"{each.best_fixed} ({each.fixed_to_off:.2f})",
            f"{each.auto_to_oracle:.3f}",
            f"{each.auto_to_fixed:.3f}",
            f"{each.auto_to_off:.3f}",
            "–" if each.num_rounds_to_recover is None else str(each.num_rounds_to_recover),
        ]
        for each in rows
    ]
    return markdown_table(header, lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench replay", description=__doc__)
    parser.add_argument("--trace", type=Path, default=DEFAULT_TRACE)
    parser.add_argument("--tokens", type=int, default=24000, help="of a phase with one stream")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="scenarios with it in their name"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="replay", help="of the result files")
    return parser
