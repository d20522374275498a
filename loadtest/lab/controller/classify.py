"""`specdec bench classify`: how often the rules find the right task of a request without one.

The prompts are ours. Those that were held out when the rules (`specdec.tasks.cues`) were written
are counted apart from those that were in view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from specdec.builder.distill.prompts import PromptSettings, held_out, shipped
from specdec.loadtest.kit.options import bench_parser, finish
from specdec.loadtest.kit.results import markdown_table
from specdec.tasks.classify import classify

RIGHT, WRONG, NONE = "right", "wrong", "none"


def main(argv: list[str]) -> int:
    """Measure and report; return 1 if the rules are wrong more often than right."""
    arguments = bench_parser("classify", __doc__, has_models=False).parse_args(argv)
    held = held_out(PromptSettings())
    kept = {text for _, text in held}
    seen = [(task, text) for task, text in shipped() if text not in kept]
    found = {"held out": _classified(held), "in view": _classified(seen)}
    header = ["task"]
    header += [f"{name}: {kind}" for name in found for kind in ("prompts", RIGHT, WRONG, NONE)]
    rows = [
        [task.replace("_", " "), *(cell for each in found.values() for cell in _cells(each[task]))]
        for task in found["held out"]
    ]
    rows.append(["all", *(cell for each in found.values() for cell in _cells(_all(each)))])
    total = _all(found["held out"])
    is_right = total[RIGHT] > total[WRONG]
    faults = [] if is_right else ["the rules are wrong more often than right"]
    table = markdown_table(header, rows)
    return finish(arguments, argv, {"outcomes": found}, table, faults=faults)


def _classified(pairs: Sequence[tuple[str, str]]) -> dict[str, Counter[str]]:
    """Return how many prompts of each task the rules got right, wrong, or left without a task."""
    counts: dict[str, Counter[str]] = {task: Counter() for task, _ in pairs}
    for task, text in pairs:
        named = classify(text)
        counts[task][NONE if named is None else RIGHT if named == task else WRONG] += 1
    return counts


def _all(counts: dict[str, Counter[str]]) -> Counter[str]:
    return sum(counts.values(), Counter())


def _cells(counts: Counter[str]) -> list[str]:
    shares = (counts[kind] / counts.total() for kind in (RIGHT, WRONG, NONE))
    return [str(counts.total()), *(f"{share:.0%}" for share in shares)]
