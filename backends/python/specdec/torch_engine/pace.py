"""Decide how many rows the next pass may have.

The supervisor takes an engine without a heartbeat for hung, so a pass takes about MAX_PASS_S at
most. Beside streams, prompt rows may double a pass's usual time, or add PAUSE_S where that is more,
so that running answers pause little. Prompts alone are read in passes of about PASS_ALONE_S, so
that cancels and new requests do not wait long. The cost of a row is measured: it depends on the
machine and grows with the context.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_PASS_S = 2.5
"""Longest pass: a quarter of the supervisor's default hang limit."""

MIN_PASS_ROWS = 64
"""Rows that a pass may always have, however long they take: one for each of 64 streams."""

PAUSE_S = 0.03
"""Running streams may always wait this long for prompt rows. Where passes are short, as in a small
draft model, its prompts would otherwise be read in many small passes, and drafts come late."""

PASS_ALONE_S = 0.5
"""Duration of a pass that reads prompts only."""

STREAM_RETURNS_S = 0.5
"""A stream between two calls counts as running for this long."""

USUAL_IS_KNOWN_S = 1.0
"""A pass without prompts is run when the last one is older than this, to measure its time."""

ROWS_AT_FIRST = 64
"""Rows of a pass while the cost of a row is unknown."""

WEIGHT = 1 / 4
"""Weight of the newest pass in the means, which follow a change within a few passes."""


class Pace:
    """Means of recent passes, and the rows that follow from them; used by the engine's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._any_row_s: float | None = None
        """Seconds per row of passes with MIN_PASS_ROWS or more; None before the first of them."""
        self._prompt_row_s: float | None = None
        """Seconds that one prompt row adds to a pass."""
        self._usual_s: float | None = None
        """Duration of a pass of streams without prompts."""
        self._usual_known_s = float("-inf")
        """When a pass without prompts last ended."""
        self._stream_ran_s = float("-inf")
        """When a pass with rows of streams last ended."""

    def max_rows(self, limit: int) -> int:
        """Return how many rows the next pass may have in all, `limit` at most."""
        if self._any_row_s is None:
            return limit
        return min(limit, max(MIN_PASS_ROWS, int(MAX_PASS_S / max(self._any_row_s, 1e-9))))

    def max_prompt_rows(self, *, has_streams: bool, limit: int) -> int:
        """Return how many prompt rows the next pass may hold, `limit` at most.

        `has_streams`: rows of running streams are in the pass. Returns 0 where the pass is to run
        without prompts, which happens only beside streams.
        """
        now_s = self._clock()
        if has_streams and now_s - self._usual_known_s > USUAL_IS_KNOWN_S:
            return 0
        if self._prompt_row_s is None:
            return min(limit, ROWS_AT_FIRST)
        is_beside = has_streams or now_s - self._stream_ran_s < STREAM_RETURNS_S
        seconds = PASS_ALONE_S
        if is_beside and self._usual_s is not None:
            seconds = max(self._usual_s, PAUSE_S)
        return min(limit, max(1, int(seconds / max(self._prompt_row_s, 1e-9))))

    def passed(self, seconds: float, *, num_rows: int, num_prompt_rows: int) -> None:
        """Learn from a pass of `num_rows` ≥ 1 that took `seconds`."""
        now_s, has_streams = self._clock(), num_rows > num_prompt_rows
        if num_rows >= MIN_PASS_ROWS:  # A smaller one's time says little of the cost of a row.
            self._any_row_s = _mean(self._any_row_s, seconds / num_rows)
        if has_streams:
            self._stream_ran_s = now_s
        if not num_prompt_rows:
            self._usual_s = _mean(self._usual_s, seconds)
            self._usual_known_s = now_s
            return
        others_s = self._usual_s if has_streams and self._usual_s is not None else 0.0
        self._prompt_row_s = _mean(
            self._prompt_row_s, max(0.0, seconds - others_s) / num_prompt_rows
        )


def _mean(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
