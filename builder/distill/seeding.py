"""Random generators that give the same numbers for the same seed."""

from __future__ import annotations

import random


def seeded(seed: int | str) -> random.Random:
    """Return a generator for prompt order and templates, which need a seed and no secrecy."""
    return random.Random(seed)  # noqa: S311
