"""What every result carries: the machine, the versions, the command."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from specdec.serving.machine import processor

RESULTS = Path(__file__).parents[1] / "results"
_RESULTS_IN_TREE = "loadtest/results"
_PACKAGES = ("torch", "transformers", "nvidia-pytriton", "tritonclient", "numpy")


def conditions(command: str) -> dict[str, Any]:
    """The facts without which a figure means nothing."""
    return {
        "command": command,
        "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": _commit(),
        "processor": processor(),
        "num_cores": os.cpu_count(),
        "load_average_1min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def command_line(bench: str, argv: list[str], door: str = "specdec bench") -> str:
    """The command as a user types it; of files elsewhere on this machine, their names."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in argv]
    return " ".join([door, bench, *words])


def write_result(name: str, directory: Path, facts: dict[str, Any], table: str) -> None:
    """Leaves `name`.json (everything) and `name`.md (the table and its conditions)."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(facts, indent=1, ensure_ascii=False)
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


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A table for Markdown, readable as it stands."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [header, *rows]
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def shown(value: float | None, num_decimals: int) -> str:
    """A cell; a dash where there is no value."""
    return "–" if value is None else f"{value:.{num_decimals}f}"


def _commit() -> str:
    """The commit that was measured, marked if anything but results has changed since."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        changes = _git("status", "--porcelain", "--", ":(top)", f":(top,exclude){_RESULTS_IN_TREE}")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("-dirty" if changes else "")


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    found = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=True)
    return found.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
