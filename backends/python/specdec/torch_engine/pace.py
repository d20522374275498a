"""Decides how many rows the next pass may have.

No pass takes longer than about MAX_PASS_S: the supervisor takes an engine without a heartbeat for
hung. Beside streams, prompt rows may make a pass take twice its usual time, so that running answers
pause little; prompts alone are read in passes of about PASS_ALONE_S, so that a cancel, a new
request never wait for long. All need the cost of a row, which is measured: it depends on the
machine and grows with the context.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_PASS_S = 2.5
"""Longest pass: a quarter of the supervisor's default hang limit."""

MIN_PASS_ROWS = 64
"""Rows of a pass however long they take: a token for each of 64 streams."""

PASS_ALONE_S = 0.5
"""Duration of a pass that reads prompts only."""

STREAM_RETURNS_S = 0.5
"""A stream between two calls counts as running for this long."""

USUAL_IS_KNOWN_S = 1.0
"""After this long without one, a pass without prompts is run to see what it takes now."""

ROWS_AT_FIRST = 64
"""Rows of a pass while the cost of a row is unknown."""

WEIGHT = 1 / 4
"""Weight of the newest pass in the means: a few passes after a change they have followed."""


class Pace:
    """Means of recent passes, and the rows that follow from them; used by the engine's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mean_row_s = 0.0
        """Seconds of a pass per row, whatever the row is for."""
        self._row_s: float | None = None
        """Seconds that one prompt row adds to a pass."""
        self._usual_s: float | None = None
        """Duration of a pass of streams without prompts."""
        self._usual_known_s = float("-inf")
        """When a pass without prompts last ended."""
        self._stream_ran_s = float("-inf")
        """When a pass with rows of streams last ended."""

    def max_rows(self, limit: int) -> int:
        """Return how many rows the next pass may have in all, `limit` at most."""
        if not self._mean_row_s:
            return limit
        return min(limit, max(MIN_PASS_ROWS, int(MAX_PASS_S / self._mean_row_s)))

    def max_prompt_rows(self, *, has_streams: bool, limit: int) -> int:
        """Return how many prompt rows the next pass may hold, `limit` at most.

        `has_streams`: rows of running streams are in the pass. Returns 0 where the pass is to run
        without prompts, which happens only beside streams.
        """
        now_s = self._clock()
        if has_streams and now_s - self._usual_known_s > USUAL_IS_KNOWN_S:
            return 0
        if self._row_s is None:
            return min(limit, ROWS_AT_FIRST)
        is_beside = has_streams or now_s - self._stream_ran_s < STREAM_RETURNS_S
        seconds = self._usual_s if is_beside and self._usual_s is not None else PASS_ALONE_S
        return min(limit, max(1, int(seconds / max(self._row_s, 1e-9))))

    def passed(self, seconds: float, *, num_rows: int, num_prompt_rows: int) -> None:
        """Learn from a pass of `num_rows` ≥ 1 that took `seconds`."""
        now_s, has_streams = self._clock(), num_rows > num_prompt_rows
        self._mean_row_s = _mean(self._mean_row_s or None, seconds / num_rows)
        if has_streams:
            self._stream_ran_s = now_s
        if not num_prompt_rows:
            self._usual_s = _mean(self._usual_s, seconds)
            self._usual_known_s = now_s
            return
        others_s = self._usual_s if has_streams and self._usual_s is not None else 0.0
        self._row_s = _mean(self._row_s, max(0.0, seconds - others_s) / num_prompt_rows)


def _mean(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
