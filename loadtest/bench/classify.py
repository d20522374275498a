"""`specdec bench classify`: how often the rules for unlabelled requests name the right task.

Measured on prompts of ours that were held out when the rules (`specdec.control.cues`) were written.
Rows are what a prompt is, columns what the rules say; "none" leaves a request without a task.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from builder.distill.prompts import PromptSettings, held_out, shipped
from loadtest.bench.reporting import (
    RESULTS,
    command_line,
    conditions,
    markdown_table,
    write_result,
)
from specdec.control.classify import classify
from specdec.control.cues import TASKS

NONE = "none"
NUM_TIMES = 20
"""Repetitions of which the fastest is a prompt's time."""


def main(argv: list[str]) -> int:
    """Measure and report; 1 if the rules are right less often than wrong."""
    arguments = _parser().parse_args(argv)
    held = held_out(PromptSettings())
    kept = {text for _, text in held}
    seen = [(task, text) for task, text in shipped() if text not in kept]
    said = {name: _classified(pairs) for name, pairs in (("held out", held), ("in view", seen))}
    micros = sorted(_seconds(text) * 1e6 for _, text in held)
    facts = {
        "conditions": conditions(command_line("classify", argv)),
        "confusion": {
            name: {task: dict(counts) for task, counts in each.items()}
            for name, each in said.items()
        },
        "median_us": micros[len(micros) // 2],
        "largest_us": micros[-1],
    }
    parts = [_rates(said), _confusion(said["held out"])]
    parts.append(
        f"A request takes {micros[len(micros) // 2]:.0f} µs (median; at most {micros[-1]:.0f})."
    )
    write_result(arguments.name, arguments.out, facts, "\n\n".join(parts))
    right, wrong, _ = _shares(said["held out"], TASKS)
    if right <= wrong:
        print("BROKEN: the rules are wrong more often than right", file=sys.stderr)
    return int(right <= wrong)


def _classified(pairs: Sequence[tuple[str, str]]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {task: Counter() for task in TASKS}
    for task, text in pairs:
        counts[task][classify(text) or NONE] += 1
    return counts


def _shares(said: dict[str, Counter[str]], tasks: Sequence[str]) -> tuple[float, float, float]:
    """Right, wrong and without a task, over all prompts of these tasks."""
    total = sum(said[task].total() for task in tasks)
    right = sum(said[task][task] for task in tasks)
    none = sum(said[task][NONE] for task in tasks)
    return right / total, (total - right - none) / total, none / total


def _rates(said: dict[str, dict[str, Counter[str]]]) -> str:
    """By task, held-out prompts beside those in view when the rules were written."""
    rows = []
    for tasks in (*((task,) for task in TASKS), TASKS):
        cells = [f"{share:.0%}" for each in said.values() for share in _shares(each, tasks)]
        label = tasks[0].replace("_", " ") if len(tasks) == 1 else "all"
        count = sum(said["held out"][task].total() for task in tasks)
        rows.append([label, str(count), *cells])
    header = ["task", "held out", "right", "wrong", "none", "in view: right", "wrong ", "none "]
    return markdown_table(header, rows)


def _confusion(said: dict[str, Counter[str]]) -> str:
    rows = [
        [task.replace("_", " "), *(str(said[task][each] or "") for each in (*TASKS, NONE))]
        for task in TASKS
    ]
    return markdown_table(["held out", *(each.split("_")[0] for each in TASKS), NONE], rows)


def _seconds(text: str) -> float:
    taken_s = []
    for _ in range(NUM_TIMES):
        start_s = time.perf_counter()
        classify(text)
        taken_s.append(time.perf_counter() - start_s)
    return min(taken_s)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdec bench classify", description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="classify", help="of the result files")
    return parser
