"""One thing that a check found."""

from __future__ import annotations

from dataclasses import dataclass

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong or worth knowing, why it matters, and what to do about it."""

    severity: str
    """error: cannot be built or will not load; warning: works, but likely not as wished; note."""
    code: str
    """Stable, for tests and scripts."""
    message: str
    """What and why, with the limit and the value given."""
    remedy: str = ""
    """What to do; empty where there is nothing to do."""


def error(code: str, message: str, remedy: str) -> Finding:
    """What keeps the pair from being built or loaded."""
    return Finding(ERROR, code, message, remedy)


def warning(code: str, message: str, remedy: str) -> Finding:
    """What works, but likely not as wished."""
    return Finding(WARNING, code, message, remedy)


def note(code: str, message: str, remedy: str = "") -> Finding:
    """What is worth knowing."""
    return Finding(NOTE, code, message, remedy)
