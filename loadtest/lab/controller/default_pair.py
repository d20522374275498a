"""The drafters of the default pair, which `record` records and `replay` replays."""

from __future__ import annotations

from specdec.steering.choices import COPY, OFF_CHOICE, Candidate, Choice

CANDIDATES = {
    each.name: each
    for each in (
        Candidate("eagle3", (1, 2, 3, 4, 5, 6), is_head=True),
        Candidate("eagle3_tree", (8,), max_depth=5, is_head=True),
        Candidate("draft", (1, 2, 3, 4, 5, 6)),
    )
}
"""The head, its tree and the draft model, as DrafterFactory describes them, by name."""

HEADS = tuple(name for name, each in CANDIDATES.items() if each.is_head)

TIMED_LENGTHS = {"draft": (1, 2, 4), "eagle3": (1, 2, 3, 6), "eagle3_tree": (8,)}
"""Draft tokens of the rounds whose times are recorded; others lie between them."""

MAX_COPY_TOKENS = 11
"""Draft tokens of lookup after a long match."""

DEFAULT = Choice("eagle3", 3)

FIXED = (
    OFF_CHOICE,
    Choice(COPY),
    *(Choice("eagle3", length) for length in (1, 2, 3, 4, 6)),
    Choice("eagle3_tree", 8),
    *(Choice("draft", length) for length in (1, 2, 4)),
)
"""The choices that an operator could have configured."""
