"""`specdec bench reliability`: play the scenarios on servers of their own, and write the table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from loadtest.reliability import (
    deaths,
    flood,
    fuzz,
    hangups,
    overload,
    pauses,
    poison,
    refusals,
    slow_readers,
    stops,
    surroundings,
)
from loadtest.reliability.crashes import CrashWatch
from loadtest.reliability.table import Row

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
}


def main(argv: list[str]) -> int:
    """Run the scenarios; 1 if a goal was missed or crashes cannot be seen on this machine."""
    parser = argparse.ArgumentParser(prog="specdec bench reliability", description=__doc__)
    # argparse checks the default of `*`, an empty list, against the choices too.
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
    is_met = True
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
        is_met &= all(row.is_met for row in rows)
    return 0 if is_met else 1
