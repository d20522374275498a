"""What a round takes at a batch size, from times that are known or guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from specdec.control.expectation import RoundTime


@dataclass(frozen=True, slots=True)
class Costs:
    """Times of both models. With a target pass of 1 ms everything is in units of a plain step."""

    pass_ms: Mapping[int, float]
    """A target pass by its rows, at least one entry; straight lines in between and beyond."""
    draft_ms: float
    """A guess: one step of the draft, whatever the batch."""
    overhead_ms: float = 0.0
    """Of a round with guesses, outside both engines."""

    def __post_init__(self) -> None:
        times = [*self.pass_ms.values(), self.draft_ms, self.overhead_ms]
        if not self.pass_ms or min(self.pass_ms) < 1 or min(self.pass_ms.values()) <= 0:
            raise ValueError("a target pass takes more than 0 ms, and has at least 1 row")
        if min(times) < 0:
            raise ValueError(f"times are 0 ms or more, not {min(times):g}")

    def verify_ms(self, num_rows: int) -> float:
        """A target pass over so many rows: of each request, its guesses and one more."""
        rows = sorted(self.pass_ms)
        if len(rows) == 1:
            return self.pass_ms[rows[0]]
        times = [self.pass_ms[each] for each in rows]
        if num_rows <= rows[-1]:
            return float(np.interp(num_rows, rows, times))
        slope = (times[-1] - times[-2]) / (rows[-1] - rows[-2])
        return times[-1] + slope * (num_rows - rows[-1])

    def round_ms(self, batch_size: int) -> RoundTime:
        """Of `batch_size` requests that share each pass, by guesses; 0 is a plain step."""

        def time_of(num_draft_tokens: int) -> float:
            if num_draft_tokens == 0:
                return self.verify_ms(batch_size)
            verify_ms = self.verify_ms(batch_size * (num_draft_tokens + 1))
            return num_draft_tokens * self.draft_ms + verify_ms + self.overhead_ms

        return time_of


@dataclass(frozen=True, slots=True)
class AnswerTime:
    """One answer of a length, in rounds that give `tokens_per_round` each."""

    num_passes: int
    """Of the target."""
    num_draft_steps: int
    speculative_ms: float
    plain_ms: float


def answer_time(
    num_tokens: int, tokens_per_round: float, num_draft_tokens: int, round_ms: RoundTime
) -> AnswerTime:
    """Of `num_tokens` > 0, the prompt left out; a round that is begun is paid in full."""
    num_passes = int(np.ceil(num_tokens / tokens_per_round - 1e-9))
    return AnswerTime(
        num_passes=num_passes,
        num_draft_steps=num_passes * num_draft_tokens,
        speculative_ms=num_passes * round_ms(num_draft_tokens),
        plain_ms=num_tokens * round_ms(0),
    )
