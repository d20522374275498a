"""The time of a round at a batch size, from times that are known or assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specdec.estimates.formulas import RoundTime


@dataclass(frozen=True, slots=True)
class Costs:
    """Times of target and draft model in ms.

    With a target pass of 1 ms, every time is in units of a plain step. Raises ValueError for
    negative times, and for target passes of 0 ms or without rows.
    """

    pass_ms: Mapping[int, float]
    """Time of a target pass by its number of rows, with at least one entry.

    Interpolated linearly and continued in a straight line above the largest entry. Below the
    smallest entry, and everywhere if there is one entry only, the nearest time holds.
    """
    draft_ms: float
    """Time of one draft token, a step of the draft model, at any batch size."""
    overhead_ms: float = 0.0
    """Time of a round with a draft that is spent outside both engines."""

    def __post_init__(self) -> None:
        times = [*self.pass_ms.values(), self.draft_ms, self.overhead_ms]
        if not self.pass_ms or min(self.pass_ms) < 1 or min(self.pass_ms.values()) <= 0:
            raise ValueError("a target pass takes more than 0 ms, and has at least 1 row")
        if min(times) < 0:
            raise ValueError(f"times are 0 ms or more, not {min(times):g}")

    def verify_ms(self, num_rows: int) -> float:
        """Return the ms of a target pass over `num_rows` rows.

        Each request adds a row for each of its draft tokens, and one more.
        """
        rows = sorted(self.pass_ms)
        if len(rows) == 1:
            return self.pass_ms[rows[0]]
        times = [self.pass_ms[each] for each in rows]
        if num_rows <= rows[-1]:
            return float(np.interp(num_rows, rows, times))
        slope = (times[-1] - times[-2]) / (rows[-1] - rows[-2])
        return times[-1] + slope * (num_rows - rows[-1])

    def round_ms(self, batch_size: int) -> RoundTime:
        """Return the time of a round in ms as a function of k; k = 0 is a plain step.

        `batch_size` requests share each pass.
        """

        def time_of(num_draft_tokens: int) -> float:
            if num_draft_tokens == 0:
                return self.verify_ms(batch_size)
            verify_ms = self.verify_ms(batch_size * (num_draft_tokens + 1))
            return num_draft_tokens * self.draft_ms + verify_ms + self.overhead_ms

        return time_of


@dataclass(frozen=True, slots=True)
class AnswerTime:
    """The time of one answer of a given length, with and without speculation."""

    num_passes: int
    """Passes of the target with speculation."""
    num_draft_steps: int
    speculative_ms: float
    plain_ms: float


def answer_time(
    num_tokens: int, tokens_per_round: float, num_draft_tokens: int, round_ms: RoundTime
) -> AnswerTime:
    """Return the time of an answer of `num_tokens` > 0 tokens, without its prompt.

    The last round counts in full, even if it gives more tokens than are needed.
    """
    num_passes = int(np.ceil(num_tokens / tokens_per_round - 1e-9))
    return AnswerTime(
        num_passes=num_passes,
        num_draft_steps=num_passes * num_draft_tokens,
        speculative_ms=num_passes * round_ms(num_draft_tokens),
        plain_ms=num_tokens * round_ms(0),
    )
