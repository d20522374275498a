"""Limits on the number of rows in the next pass.

The supervisor takes an engine without a heartbeat for hung, so no pass should take longer than
about MAX_PASS_S. Beside running streams, prompt rows may add the usual time of a pass, or PAUSE_S
if that is longer, so that answers pause only a little. A pass with no rows but those of prompts
takes about PASS_ALONE_S, so that cancels and new requests do not wait long. The cost of a row is
measured, because it depends on the machine and grows with the context.
"""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_PASS_S = 2.5
"""Longest pass in seconds: a quarter of the supervisor's default hang limit."""

MIN_PASS_ROWS = 64
"""Rows that a pass may always have, even if they take longer: one for each of 64 streams."""

PAUSE_S = 0.03
"""Seconds that prompt rows may always add to a pass of running streams. A small draft model has
short passes. Without this a prompt would need many of them, and its drafts would be late."""

PASS_ALONE_S = 0.5
"""Seconds that a pass without running streams may take."""

STREAM_RETURNS_S = 0.5
"""Seconds for which a stream counts as running after a pass with its rows."""

USUAL_IS_KNOWN_S = 1.0
"""Age in seconds at which the usual time of a pass is measured again, by a pass without prompts."""

ROWS_AT_FIRST = 64
"""Prompt rows of a pass while the cost of a prompt row is unknown."""

WEIGHT = 1 / 4
"""Weight of the newest pass in the means, so that they follow a change within a few passes."""


class Pace:
    """The row limits of the next pass, from the means of recent passes.

    Used by the engine's thread only.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._any_row_s: float | None = None
        """Seconds per row in passes of at least MIN_PASS_ROWS rows; None before the first one."""
        self._prompt_row_s: float | None = None
        """Seconds that one prompt row adds to a pass; None before the first pass with prompts."""
        self._usual_s: float | None = None
        """Seconds that a pass of streams without prompts takes; None before the first one."""
        self._usual_known_s = float("-inf")
        """Time at which a pass without prompts last ended."""
        self._stream_ran_s = float("-inf")
        """Time at which a pass with rows of streams last ended."""

    def max_rows(self, limit: int) -> int:
        """Return how many rows the next pass may have in all, at most `limit`."""
        if self._any_row_s is None:
            return limit
        return min(limit, max(MIN_PASS_ROWS, int(MAX_PASS_S / max(self._any_row_s, 1e-9))))

    def max_prompt_rows(self, *, has_streams: bool, limit: int) -> int:
        """Return how many prompt rows the next pass may have, at most `limit`.

        `has_streams` says whether the pass has rows of running streams. Only then can the result
        be 0, which means that the pass should run without prompts.
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
        """Update the means with a pass of `num_rows` ≥ 1 rows that took `seconds`."""
        now_s, has_streams = self._clock(), num_rows > num_prompt_rows
        # The time of a smaller pass says little about the cost of a row.
        if num_rows >= MIN_PASS_ROWS:
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
