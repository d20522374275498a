"""Random choices that follow from a seed."""

from __future__ import annotations

import random


def seeded(seed: int | str) -> random.Random:
    """A generator for prompt order and templates: a seed is wanted, not a secret."""
    return random.Random(seed)  # noqa: S311
