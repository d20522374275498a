"""The acceptance and speed-up by task that "Speculative Decoding for LLM Acceleration" states.

This production guide gives accepted ÷ drafted tokens, which falls with k. Its usual k is 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.estimates.formulas import alpha_of_rate

NUM_DRAFT_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Range:
    """Values from `low` to `high`, both included."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.2f}–{self.high:.2f}"


@dataclass(frozen=True, slots=True)
class Expectation:
    """The ranges that the guide states for one task."""

    acceptance_rate: Range
    """Accepted ÷ drafted tokens."""
    speed_up: Range

    @property
    def conditional_acceptance(self) -> Range:
        """The same acceptance as α̂, which does not depend on k."""
        rate = self.acceptance_rate
        low, high = (alpha_of_rate(end, NUM_DRAFT_TOKENS) for end in (rate.low, rate.high))
        return Range(low, high)

    @property
    def mean_acceptance_length(self) -> Range:
        """τ, the target's own token included: 1 + k · accepted ÷ drafted."""
        rate = self.acceptance_rate
        return Range(1 + NUM_DRAFT_TOKENS * rate.low, 1 + NUM_DRAFT_TOKENS * rate.high)


TASKS = {
    "code_generation": Expectation(Range(0.75, 0.85), Range(2.0, 2.3)),
    "creative_writing": Expectation(Range(0.45, 0.60), Range(1.3, 1.8)),
    "summarization": Expectation(Range(0.65, 0.75), Range(1.8, 2.2)),
    "question_answering": Expectation(Range(0.70, 0.80), Range(2.0, 2.4)),
    "translation": Expectation(Range(0.60, 0.70), Range(1.7, 2.0)),
    "mathematics": Expectation(Range(0.70, 0.78), Range(1.9, 2.2)),
    "sql": Expectation(Range(0.80, 0.88), Range(2.2, 2.6)),
    "api_calls": Expectation(Range(0.75, 0.82), Range(2.0, 2.4)),
    "legal_analysis": Expectation(Range(0.65, 0.72), Range(1.8, 2.1)),
    "customer_support": Expectation(Range(0.55, 0.68), Range(1.6, 1.95)),
}


def _mean(ranges: list[Range]) -> Range:
    """Return the mean of the lower and of the upper ends."""
    lows, highs = [each.low for each in ranges], [each.high for each in ranges]
    return Range(sum(lows) / len(lows), sum(highs) / len(highs))


ALL_TASKS = Expectation(
    _mean([each.acceptance_rate for each in TASKS.values()]),
    _mean([each.speed_up for each in TASKS.values()]),
)
"""The means of the ranges of all tasks."""
