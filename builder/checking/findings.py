"""The finding of a check, and its severities."""

from __future__ import annotations

from dataclasses import dataclass

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem or fact that a check found, why it matters, and what to do about it."""

    severity: str
    """ERROR (the pair cannot be built or loaded), WARNING (works, hardly as intended) or NOTE."""
    code: str
    """Short name of the problem, stable for tests and scripts."""
    message: str
    """The problem and its reason, with the limit and the value given."""
    remedy: str = ""
    """Advice; empty if there is nothing to do."""


def error(code: str, message: str, remedy: str) -> Finding:
    """Return a finding that keeps the pair from being built or loaded."""
    return Finding(ERROR, code, message, remedy)


def warning(code: str, message: str, remedy: str) -> Finding:
    """Return a finding about something that works, but hardly as intended."""
    return Finding(WARNING, code, message, remedy)


def note(code: str, message: str, remedy: str = "") -> Finding:
    """Return a finding that is only worth knowing."""
    return Finding(NOTE, code, message, remedy)
