"""Writes the result of a bench: its figures and table, with machine, commit and command."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from specdec.deployment.machine import processor
from specdec.folders import default_results

RESULTS = default_results()
SCRATCH = Path("results/scratch")
"""Folder of single measurements, in the working directory; git ignores it."""
UNKNOWN = "unknown"
_RESULTS_IN_TREE = "loadtest/results"
_PACKAGES = ("torch", "transformers", "nvidia-pytriton", "tritonclient", "numpy")
NUM_DIGITS = 4
"""Significant digits of a figure in a result."""

Row = TypeVar("Row")


def conditions(command: str) -> dict[str, Any]:
    """Return the conditions of a measurement that ends now."""
    return {
        "command": command,
        "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit_of(RESULTS.parent),
        "processor": processor(),
        "num_cores": os.cpu_count(),
        "load_average_1min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def command_line(bench: str, argv: Sequence[str], program: str = "specdec bench") -> str:
    """Return the command as a user types it, with absolute paths cut to their last part."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in argv]
    return " ".join([program, bench, *words])


def write_result(
    name: str, directory: Path, facts: Mapping[str, Any], table: str, raw: Any = None
) -> None:
    """Write `name`.json (figures and conditions) and `name`.md (the table and its conditions).

    `facts` has the figures of the table, never an entry per answer. Single measurements are `raw`
    and go to results/scratch/`name`.raw.json. Both may contain dataclasses.
    """
    directory.mkdir(parents=True, exist_ok=True)
    text = in_lines(plain(facts, NUM_DIGITS), depth=2)
    (directory / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    known = facts["conditions"]
    head = (
        f"`{known['command']}`\n\n{known['processor']}, {known['num_cores']} cores; "
        f"torch {known['packages']['torch']}; {known['finished_at'][:10]}; "
        f"commit {known['commit']}; load average at the end {known['load_average_1min']}.\n\n"
    )
    (directory / f"{name}.md").write_text(head + table + "\n", encoding="utf-8")
    print(table)
    print(f"written: {directory / name}.json, .md", file=sys.stderr)
    if raw is not None:
        path = SCRATCH / f"{name}.raw.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        measured = {"conditions": known, "measurements": plain(raw)}
        path.write_text(in_lines(measured, depth=2) + "\n", encoding="utf-8")
        print(f"single measurements: {path}", file=sys.stderr)


def table_of(columns: Mapping[str, Callable[[Row], str]], rows: Iterable[Row]) -> str:
    """Return a Markdown table with one line for each row; `columns` has each cell by its title."""
    cells = [[cell(row) for cell in columns.values()] for row in rows]
    return markdown_table(list(columns), cells)


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table with columns of even width."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [header, *rows]
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def format_number(value: float | None, num_decimals: int) -> str:
    """Return a number as a cell; a dash for None."""
    return "–" if value is None else f"{value:.{num_decimals}f}"


def plain(value: Any, num_digits: int | None = None) -> Any:
    """Turn dataclasses, tuples and mappings at any depth into JSON values.

    With `num_digits`, floats are rounded to as many significant digits.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value), num_digits)
    if isinstance(value, Mapping):
        return {str(key): plain(each, num_digits) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, num_digits) for each in value]
    return float(f"{value:.{num_digits}g}") if num_digits and isinstance(value, float) else value


def commit_of(root: Path) -> str:
    """Return the short name of the commit that is checked out.

    `-dirty` follows if files have changed. Results do not count. Neither do weights that are
    missing, because they do not travel with the checkout. UNKNOWN if Git does not answer.
    """

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        status = git("status", "--porcelain", "--", ":(top)", f":(top,exclude){_RESULTS_IN_TREE}")
        commit = git("rev-parse", "--short", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    changes = [each.split(maxsplit=1) for each in status.splitlines()]
    is_dirty = any(kind != "D" or not path.endswith(".safetensors") for kind, path in changes)
    return commit + ("-dirty" if is_dirty else "")


def in_lines(value: Any, depth: int, indent: str = "") -> str:
    """Return JSON with a line for each entry of the outer `depth` levels."""
    if not depth or not value or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    inner = indent + " "
    if isinstance(value, dict):
        lines = [
            f"{json.dumps(key, ensure_ascii=False)}: {in_lines(each, depth - 1, inner)}"
            for key, each in value.items()
        ]
    else:
        lines = [in_lines(each, depth - 1, inner) for each in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{inner}" + f",\n{inner}".join(lines) + f"\n{indent}{closing}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
