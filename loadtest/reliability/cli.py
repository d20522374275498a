"""`specdec bench reliability`: play the scenarios on servers of their own, and write the table."""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from specdec.folders import default_model_repository
from specdec.loadtest.arguments import positive
from specdec.loadtest.kit.results import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from specdec.loadtest.reliability.kit.crashes import CrashWatch
from specdec.loadtest.reliability.kit.table import Row, one_line
from specdec.loadtest.reliability.scenarios import (
    deaths,
    flood,
    fuzz,
    gateway_hangups,
    gateway_readers,
    hangups,
    hostile_guides,
    overload,
    pauses,
    poison,
    refusals,
    replicas,
    slow_readers,
    stops,
    surroundings,
)

SCENARIOS: dict[str, Callable[[Path, int], Iterable[Row]]] = {
    "stops": stops.rows,
    "deaths": deaths.rows,
    "refusals": refusals.rows,
    "poison": poison.rows,
    "fuzz": fuzz.rows,
    "pauses": pauses.rows,
    "flood": flood.rows,
    "slow_readers": slow_readers.rows,
    "overload": overload.rows,
    "surroundings": surroundings.rows,
    "hangups": hangups.rows,
    "gateway_hangups": gateway_hangups.rows,
    "gateway_readers": gateway_readers.rows,
    "replicas": replicas.rows,
    "hostile_guides": hostile_guides.rows,
}


def main(argv: list[str]) -> int:
    """Run the scenarios; return 1 if a goal was missed or this machine does not show crashes."""
    arguments = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        if not CrashWatch(Path(folder)).sees_a_crash():
            print(
                "this machine does not show crashes: the kernel log cannot be read and no core "
                "files are written",
                file=sys.stderr,
            )
            return 1
    names = arguments.scenarios or SCENARIOS
    are_met = [_play(name, arguments, argv) for name in names]
    return 0 if all(are_met) else 1


def _play(name: str, arguments: argparse.Namespace, argv: Sequence[str]) -> bool:
    """Play one scenario, write its table, and tell whether all its goals were met."""
    at_start = conditions(command_line("reliability", argv))
    rows = []
    for row in played(name, arguments.model_repository.resolve(), arguments.rounds):
        print(f"{'met   ' if row.is_met else 'MISSED'} {row.what}: {row.figure}", flush=True)
        rows.append(row)
    table = markdown_table(
        ["what", "figure", "goal", "met"],
        [[row.what, row.figure, row.goal, "yes" if row.is_met else "**no**"] for row in rows],
    )
    at_end = conditions(command_line("reliability", argv))
    facts = {"conditions": of_the_run(at_start, at_end), "rows": rows}
    write_result(f"reliability_{name}", arguments.out, facts, table)
    return all(row.is_met for row in rows)


def played(name: str, repository: Path, rounds: int) -> Iterator[Row]:
    """Yield a scenario's rows; an exception in it ends it with a row that missed its goal."""
    try:
        yield from SCENARIOS[name](repository, rounds)
    except Exception as error:  # noqa: BLE001 - the rows so far, and the other scenarios, count
        traceback.print_exc()
        yield Row(name, f"the scenario failed: {one_line(repr(error))}", "", is_met=False)


def of_the_run(at_start: dict[str, Any], at_end: dict[str, Any]) -> dict[str, Any]:
    """Return the conditions of a scenario's run, at its end.

    The commit is marked if it changed meanwhile: each server starts from the files as they are
    then.
    """
    commit = at_start["commit"]
    if at_end["commit"] != commit:
        commit += ", changed during the run"
    return at_end | {"commit": commit}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench reliability", description=__doc__)
    # argparse checks the default of `*`, an empty list, against the choices too.
    parser.add_argument(
        "scenarios",
        nargs="*",
        choices=[*SCENARIOS, []],
        metavar="SCENARIO",
        help=f"default: all of {', '.join(SCENARIOS)}",
    )
    parser.add_argument(
        "--rounds",
        type=positive,
        default=6,
        help="repetitions of a scenario (default: %(default)s)",
    )
    parser.add_argument(
        "--model-repository",
        type=Path,
        default=default_model_repository(),
        help="Triton models to serve (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="folder of the results (default: %(default)s)"
    )
    return parser
