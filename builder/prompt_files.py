"""Prompt files, the users' and the shipped ones: a JSON object with `prompt` on each line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from specdec.builder.errors import BuildError

SHIPPED = Path(__file__).parent / "prompts"
"""Folder of the shipped prompts, one file for each task."""

MT_BENCH = frozenset(
    ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
)
"""Categories of MT-bench, which Spec-Bench's authors report as one column."""


def column_of(category: str) -> str:
    """Return the Spec-Bench column of a category."""
    return "mt_bench" if category in MT_BENCH else category


@dataclass(frozen=True, slots=True)
class FilePrompt:
    """A user's text, and its task if the file names it."""

    text: str
    task: str | None = None


def read_prompts(path: Path) -> list[FilePrompt]:
    """Return the prompts of a file with {"prompt": text} on each line, and perhaps "task".

    Raises BuildError for a file that cannot be read or has no prompts, and for a malformed line.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise BuildError(f"the prompts in {path} cannot be read: {error}") from error
    if not lines:
        raise BuildError(f"{path} has no prompts")
    return [_prompt_in(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def shipped() -> list[tuple[str, str]]:
    """Return (task, user text) of the shipped prompts, task by task.

    Raises BuildError if the installation lacks them.
    """
    files = sorted(SHIPPED.glob("*.jsonl"))
    if not files:
        raise BuildError(f"{SHIPPED} has no prompts; reinstall, or give your own")
    return [(path.stem, each.text) for path in files for each in read_prompts(path)]


def _prompt_in(line: str, where: str) -> FilePrompt:
    try:
        fields = json.loads(line)
        text, task = fields["prompt"], fields.get("task")
    except (ValueError, KeyError, TypeError, AttributeError):
        text = task = None
    if not isinstance(text, str) or not isinstance(task, str | None):
        raise BuildError(
            f'{where}: {{"prompt": text}} is needed, with "task" if it is known; given {line[:80]}'
        )
    return FilePrompt(text, task)
