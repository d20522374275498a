"""`specdec bench reliability`: play the scenarios on servers of their own, and write the table."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.reliability.crashes import CrashWatch
from loadtest.reliability.deaths import BLOWS, VICTIMS, DeathResult, strike
from loadtest.reliability.refusals import RoundResult, play_round, references
from loadtest.reliability.stops import DRAIN_S, SITUATIONS, stop_in
from specdec.serving.triton_server import TritonServer

STOP_LIMIT_S = DRAIN_S + 5.0
TOLD_LIMIT_S = 3.0
UNREADY_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    figure: str
    goal: str
    is_met: bool


def stops(repository: Path, rounds: int) -> Iterator[Row]:
    """Stop a server in each situation, `rounds` times."""
    for situation in SITUATIONS:
        results = [asyncio.run(stop_in(situation, repository)) for _ in range(rounds)]
        seconds = [each.seconds for each in results]
        leftovers = [each for result in results for each in result.leftovers]
        finished, refused, broken = (
            sum(getattr(each, name) for each in results)
            for name in ("num_finished", "num_refused", "num_broken")
        )
        statuses = sorted({each.status for each in results})
        yield Row(
            f"stop, {situation} (×{rounds})",
            f"{_spread(seconds)}; exit {', '.join(map(str, statuses))}; {finished} finished, "
            f"{refused} told, {broken} broken; leftovers and crashes: "
            f"{', '.join(leftovers) or 'none'}",
            f"≤ {STOP_LIMIT_S:g} s, exit 0, none broken, none left",
            max(seconds) <= STOP_LIMIT_S and statuses == [0] and not leftovers and not broken,
        )


def deaths(repository: Path, rounds: int) -> Iterator[Row]:
    """Strike each process in each way, `rounds` times, two deaths to a server."""
    for victim in VICTIMS:
        for blow in BLOWS:
            results: list[DeathResult] = []
            while len(results) < rounds:
                with _server(repository) as server:
                    results += [
                        asyncio.run(strike(server, victim, blow))
                        for _ in range(min(2, rounds - len(results)))
                    ]
            yield _death_row(victim, blow, results)


def _death_row(victim: str, blow: str, results: Sequence[DeathResult]) -> Row:
    told = [each.slowest_error_s for each in results]
    unready = [each.unready_s for each in results]
    back = [each.back_s for each in results]
    got = sorted({error for each in results for error in each.errors})
    what = f"{blow} of {victim} under 8 streams (×{len(results)})"
    if victim == "draft":
        return Row(
            what,
            f"streams: {', '.join(got)}; server back in {_spread(back)}",
            "every answer whole",
            got == ["whole"],
        )
    return Row(
        what,
        f"clients got {', '.join(got)} after {_spread(told)}; not ready after {_spread(unready)}; "
        f"answers again after {_spread(back)}",
        f"told ≤ {TOLD_LIMIT_S:g} s, not ready ≤ {UNREADY_LIMIT_S:g} s, back",
        max(told) <= TOLD_LIMIT_S and max(unready) <= UNREADY_LIMIT_S and max(back) < float("inf"),
    )


def refusals(repository: Path, rounds: int) -> Iterator[Row]:
    """Play rounds of 64 streams with 576 refused requests beside them, on one server."""
    with tempfile.TemporaryDirectory() as folder, _server(repository) as server:
        crashes = CrashWatch(Path(folder))
        pid = server.pid
        known = asyncio.run(references(server.grpc_url))
        results: list[RoundResult] = [
            asyncio.run(play_round(server.grpc_url, known, n)) for n in range(rounds)
        ]
        found, is_same = crashes.found(), server.pid == pid
    others = [each for result in results for each in result.others]
    yield Row(
        f"64 streams, 576 more refused at once (×{rounds})",
        f"{sum(each.num_exact for each in results)} answers exact, "
        f"{sum(each.num_refused for each in results)} refused, {len(others)} otherwise; "
        f"crashes: {len(found)}; server {'the same' if is_same else 'restarted'}",
        "0 deaths, every accepted answer exact",
        not others and not found and is_same,
    )


SCENARIOS: dict[str, Callable[[Path, int], Iterable[Row]]] = {
    "stops": stops,
    "deaths": deaths,
    "refusals": refusals,
}


def main(argv: list[str]) -> int:
    """Run the scenarios; 1 if a goal was missed or crashes cannot be seen on this machine."""
    parser = argparse.ArgumentParser(prog="specdec bench reliability", description=__doc__)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], metavar="SCENARIO")
    parser.add_argument("--rounds", type=int, default=6, help="default: %(default)s")
    parser.add_argument("--model-repository", type=Path, default=Path("model_repository"))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        if not CrashWatch(Path(folder)).sees_a_crash():
            print("a planted crash was not seen: no kernel log, no core files", file=sys.stderr)
            return 1
    repository = arguments.model_repository.resolve()
    for name in arguments.scenarios or SCENARIOS:
        rows = []
        for row in SCENARIOS[name](repository, arguments.rounds):
            print(f"{'met   ' if row.is_met else 'MISSED'} {row.what}: {row.figure}", flush=True)
            rows.append(row)
        table = markdown_table(
            ["what", "figure", "goal", "met"],
            [[row.what, row.figure, row.goal, "yes" if row.is_met else "**no**"] for row in rows],
        )
        facts = {"conditions": conditions(command_line("reliability", argv)), "rows": rows}
        write_result(f"reliability_{name}", arguments.out, facts, table)
        if not all(row.is_met for row in rows):
            return 1
    return 0


def _server(repository: Path) -> TritonServer:
    return TritonServer(repository)


def _spread(seconds: Sequence[float]) -> str:
    """Median and maximum."""
    return f"{statistics.median(seconds):.2f} s (at most {max(seconds):.2f})"
