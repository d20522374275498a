"""The verification modes, by the names that requests, engine calls and responses use."""

from __future__ import annotations

EXACT, REJECTION, BLOCK, TYPICAL = "exact", "rejection", "block", "typical"

VERIFICATION_MODES = (EXACT, REJECTION, BLOCK, TYPICAL)
"""All modes. EXACT compares tokens (exact.py), the others compare probabilities (rules.py)."""

NO_VERIFICATION = "off"
"""Name in place of a mode for a request without speculation."""


def compares_probabilities(mode: str) -> bool:
    """Return whether the mode compares probabilities; False for NO_VERIFICATION."""
    return mode in (REJECTION, BLOCK, TYPICAL)


def needs_draft_logits(mode: str) -> bool:
    """Return whether the mode needs the logits from which the draft tokens were drawn."""
    return mode in (REJECTION, BLOCK)
