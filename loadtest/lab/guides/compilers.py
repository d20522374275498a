"""`specdec bench guide_compilers`: llguidance and xgrammar on public JSON schemas.

The schemas are files of MaskBench (github.com/guidance-ai/jsonschemabench, `maskbench/data`). Each
has values that follow the schema and values that do not. A value is written as `json.dumps` does,
and its tokens are given to the compiled schema one by one, each after its mask. Needs both
packages, so run it in the environment of vLLM.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from specdec.loadtest.arguments import positive
from specdec.loadtest.kit import options
from specdec.loadtest.kit.prompts import checkpoint_of
from specdec.loadtest.kit.results import table_of
from specdec.loadtest.lab.guides.libraries import COMPILERS, SEPARATORS, Compiler, Matcher

LIMIT_S = 30.0
"""Most seconds for one schema and its values; the process is then ended."""


@dataclass(frozen=True, slots=True)
class SchemaFigures:
    """Figures of one compiler for one schema."""

    compiler: str
    schema: str
    fault: str = ""
    """Reason why it was not compiled; empty if it was."""
    first_mask_s: float = 0.0
    """Seconds to compile the schema and compute the first mask."""
    masks_s: tuple[float, ...] = ()
    """Seconds of all later masks."""
    num_good: int = 0
    """Values that follow the schema."""
    num_good_taken: int = 0
    num_bad: int = 0
    """Values that do not follow it."""
    num_bad_taken: int = 0


@dataclass(frozen=True, slots=True)
class CompilerFigures:
    """One compiler over all schemas."""

    compiler: str
    num_schemas: int
    num_compiled: int
    num_late: int
    """Schemas that took longer than LIMIT_S."""
    num_good: int
    num_good_taken: int
    num_bad: int
    num_bad_taken: int
    num_right: int
    """Compiled schemas for which all values were judged rightly."""
    first_mask_ms: tuple[float, float, float]
    """Median, 95th percentile and maximum."""
    mask_us: tuple[float, float, float]
    """Median, 99th percentile and maximum, in microseconds."""


def main(argv: list[str]) -> int:
    """Measure and report; return 0."""
    arguments = _parser().parse_args(argv)
    paths = sorted(arguments.schemas.glob("*.json"))[:: arguments.every]
    checkpoint = checkpoint_of(arguments.model_repository)
    found: list[SchemaFigures] = []
    for name in COMPILERS:
        for number, figures in enumerate(_figures(name, paths, checkpoint), start=1):
            found.append(figures)
            options.progress(f"{name}: {number}/{len(paths)}")
    print(file=sys.stderr)
    totals = [total(name, [each for each in found if each.compiler == name]) for name in COMPILERS]
    return options.finish(arguments, argv, {"compilers": totals}, _table(totals), raw=found)


def _figures(name: str, paths: Sequence[Path], checkpoint: Path) -> Iterator[SchemaFigures]:
    """Yield the figures of a compiler, which runs in a process of its own."""
    left = list(paths)
    while left:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=_work, args=(name, left, checkpoint, theirs))
        process.start()
        theirs.close()
        fault = f"it took longer than {LIMIT_S:g} s"
        try:
            while left and ours.poll(LIMIT_S):
                yield ours.recv()
                left.pop(0)
        except EOFError:
            fault = "the process died"
        process.kill()
        process.join()
        if left:
            yield SchemaFigures(name, left.pop(0).stem, fault)


def _work(name: str, paths: Sequence[Path], checkpoint: Path, results: Connection) -> None:
    """Send the figures for each schema."""
    from transformers import AutoTokenizer  # noqa: PLC0415 - only the child needs it

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    compiler = COMPILERS[name](tokenizer, len(tokenizer))
    compiler({"type": "object"})()  # Warms up.
    for path in paths:
        results.send(_schema_figures(name, compiler, path, tokenizer))


def _schema_figures(name: str, compiler: Compiler, path: Path, tokenizer: Any) -> SchemaFigures:
    described = json.loads(path.read_text("utf-8"))
    begin_s = time.perf_counter()
    try:
        start = compiler(described["schema"])
        start().mask()
    except Exception as error:  # noqa: BLE001 - each library raises its own
        return SchemaFigures(name, path.stem, str(error)[:200] or type(error).__name__)
    first_mask_s = time.perf_counter() - begin_s
    masks_s: list[float] = []
    taken = {True: 0, False: 0}
    num_values = {True: 0, False: 0}
    for test in described["tests"]:
        text = json.dumps(test["data"], ensure_ascii=False, separators=SEPARATORS)
        tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        num_values[test["valid"]] += 1
        taken[test["valid"]] += follows(start(), tokens, masks_s)
    return SchemaFigures(
        name,
        path.stem,
        first_mask_s=first_mask_s,
        masks_s=tuple(masks_s),
        num_good=num_values[True],
        num_good_taken=taken[True],
        num_bad=num_values[False],
        num_bad_taken=taken[False],
    )


def follows(matcher: Matcher, tokens: Sequence[int], masks_s: list[float]) -> bool:
    """Return whether a text follows a schema, and add the seconds of each mask."""
    for token in tokens:
        begin_s = time.perf_counter()
        matcher.mask()
        masks_s.append(time.perf_counter() - begin_s)
        if not matcher.take(token):
            return False
    return matcher.may_end()


def total(name: str, found: Sequence[SchemaFigures]) -> CompilerFigures:
    """Return the figures of one compiler over all schemas."""
    compiled = [each for each in found if not each.fault]
    first_ms = sorted(1000 * each.first_mask_s for each in compiled)
    masks_us = sorted(1e6 * seconds for each in compiled for seconds in each.masks_s)

    def at(values: Sequence[float], share: float) -> float:
        return values[min(len(values) - 1, int(share * len(values)))]

    return CompilerFigures(
        name,
        len(found),
        len(compiled),
        sum(each.fault.startswith("it took") for each in found),
        sum(each.num_good for each in compiled),
        sum(each.num_good_taken for each in compiled),
        sum(each.num_bad for each in compiled),
        sum(each.num_bad_taken for each in compiled),
        sum(each.num_good_taken == each.num_good and not each.num_bad_taken for each in compiled),
        (statistics.median(first_ms), at(first_ms, 0.95), first_ms[-1]),
        (statistics.median(masks_us), at(masks_us, 0.99), masks_us[-1]),
    )


def _table(figures: Sequence[CompilerFigures]) -> str:
    def joined(values: Sequence[float], digits: int) -> str:
        return ", ".join(f"{each:.{digits}f}" for each in values)

    return table_of(
        {
            "compiler": lambda each: each.compiler,
            "schemas": lambda each: str(each.num_schemas),
            "compiled": lambda each: str(each.num_compiled),
            f"over {LIMIT_S:g} s": lambda each: str(each.num_late),
            "all values right": lambda each: str(each.num_right),
            "good values taken": lambda each: f"{each.num_good_taken} of {each.num_good}",
            "bad values taken": lambda each: f"{each.num_bad_taken} of {each.num_bad}",
            "first mask, ms: median, 95 %, most": lambda each: joined(each.first_mask_ms, 1),
            "later masks, µs: median, 99 %, most": lambda each: joined(each.mask_us, 0),
        },
        figures,
    )


def _parser() -> argparse.ArgumentParser:
    parser = options.bench_parser("guide_compilers", __doc__)
    parser.add_argument("--schemas", type=Path, required=True, help="folder of MaskBench's files")
    parser.add_argument("--every", type=positive, default=1, metavar="N", help="take every N-th")
    return parser
