"""The steps whose times are learned: a pass of the target with the drafting for it, at a load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from specdec.steering.choices import Choice
from specdec.steering.estimates import Array


class PassFeatures(NamedTuple):
    """The features of a pass on which its time depends linearly."""

    one: float
    """1, for the fixed cost of a pass."""
    num_looping: float
    """Requests that run round by round."""
    num_reading: float
    """Requests whose prompts are read."""
    num_rows: float
    """Rows of all requests."""
    num_context: float
    """Tokens of the context of the request that reports the step."""


class DraftFeatures(NamedTuple):
    """The features of the drafting for a pass."""

    one: float
    """1 if a drafter drafted, for its fixed cost."""
    num_draft_tokens: float
    """Draft tokens of all requests with the same drafter."""


class StepKey(NamedTuple):
    """The key under which similar steps are averaged."""

    drafter: str
    num_tokens: int
    bucket: int
    """Load bucket: see `load_bucket`."""


NUM_PASS, NUM_DRAFT = len(PassFeatures._fields), len(DraftFeatures._fields)


def load_bucket(num_inflight: int) -> int:
    """Return 0 for one request, 1 for two, 2 for three and four, 3 for five to eight, and so on."""
    return (max(1, num_inflight) - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of the target with the drafting for it, and the load in which it ran.

    The requests in flight may all do different things.
    """

    choice: Choice
    """Drafter and draft length of the request that reports it; COPY if neither head nor draft
    engine drafted, OFF_CHOICE for a plain step of a streaming call."""
    num_inflight: int
    num_looping: int
    """Requests in flight that run round by round."""
    num_rows: float
    """Rows of the pass, of all requests."""
    num_context: int
    """Tokens of this request's context."""
    num_drafting: int = 1
    """Requests in flight for which the choice's drafter drafts."""
    num_reading: int = 0
    """Requests in flight whose prompts are read."""

    @property
    def key(self) -> StepKey:
        return StepKey(self.choice.drafter, self.choice.num_tokens, load_bucket(self.num_inflight))

    @property
    def features(self) -> Array:
        """PassFeatures and DraftFeatures, [NUM_PASS + NUM_DRAFT] float64."""
        num_tokens = self.choice.num_tokens
        whole = PassFeatures(
            1.0, self.num_looping, self.num_reading, self.num_rows, self.num_context
        )
        drafting = DraftFeatures(float(num_tokens > 0), num_tokens * self.num_drafting)
        return np.array([*whole, *drafting])

    def with_drafter(self, choice: Choice, num_rows: float) -> Step:
        """Return the step if all requests in flight made this choice, with `num_rows` rows each."""
        num = self.num_inflight
        num_looping = 0 if choice.is_off else num
        return Step(choice, num, num_looping, num * num_rows, self.num_context, num)
