"""Predicted speeds: tokens per second of a request for each choice.

A speed is the expected tokens of a round (`acceptance_estimates.py`) ÷ its expected time
(`costs.py`). All requests in flight are assumed to make the same choice: a pass is shared by all of
them, so each added row costs every one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from specdec.steering.acceptance_estimates import Acceptance, AcceptanceEstimates
from specdec.steering.choices import (
    COPIES,
    COPY_CHOICE,
    LONG_COPIES,
    OFF_CHOICE,
    Candidate,
    Choice,
    EstimatedDrafter,
    RequestTraits,
    least_beyond,
)
from specdec.steering.costs import CostEstimates
from specdec.steering.steps import Step

OPTIMISM = 2
"""Standard errors by which a trial believes a choice to be faster than predicted."""


@dataclass(frozen=True, slots=True)
class RequestProgress:
    """The load, and how far the request is, when a choice is made."""

    num_inflight: int
    num_context: int
    """Tokens of the context."""
    num_left: int
    """Most tokens that the request may still generate."""
    is_start: bool
    """Whether it is the request's first choice."""
    can_read: bool = True
    """Whether a head has read the whole context, or would read it with the prompt."""
    readers: frozenset[str] = frozenset()
    """Draft engines that have read the prompt."""

    def must_read(self, candidate: Candidate) -> bool:
        """Return whether the drafter would first have to read the prompt."""
        return self.is_start if candidate.is_head else candidate.name not in self.readers


@dataclass(frozen=True, slots=True)
class Speed:
    """The predicted speed of a choice in tokens per second."""

    mean: float
    error: float
    """Standard error as a share of the mean."""

    @property
    def upper(self) -> float:
        """The bound by which trials choose."""
        return self.mean * (1 + OPTIMISM * self.error)


@dataclass(frozen=True, slots=True)
class _Copies:
    """The copies expected in the rounds of a choice."""

    share: float
    """Share of rounds that verify a copy, if each other round yields one token."""
    tokens: float
    """Expected tokens of a round with a copy."""
    num_draft_tokens: float
    """Expected draft tokens of a copy."""

    def share_beside(self, own_tokens: float) -> float:
        """Return the share of rounds with a copy if each other round yields `own_tokens`.

        A text then has fewer other rounds, but nearly as many copies.
        """
        num_others = (1 - self.share) / own_tokens
        return self.share / (self.share + num_others) if self.share else 0.0


NO_COPIES = _Copies(0.0, 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class _OwnRounds:
    """The rounds of a choice without a copy."""

    tokens: float = 1.0
    """Expected tokens of a round."""
    error: float = 0.0
    """Their standard error."""
    num_draft_tokens: float = 0.0
    """Expected draft tokens."""
    head_depth: int = 0
    """Depth of a head's draft; 0 if no head drafts."""


class Predictor:
    """Predicts the speeds of one request's choices. Callers hold the controller's lock."""

    def __init__(
        self,
        acceptance: AcceptanceEstimates,
        costs: CostEstimates,
        traits: RequestTraits,
        progress: RequestProgress,
        now_s: float,
        num_expected: float,
    ) -> None:
        """Take the estimates, and the properties and progress of the request.

        `num_expected`: expected tokens that are still to come. A drafter that must first read the
        prompt spreads the cost over them.
        """
        self._acceptance, self._costs = acceptance, costs
        self._traits, self._progress = traits, progress
        self._now_s, self._num_expected = now_s, num_expected
        self._plain = Step(OFF_CHOICE, progress.num_inflight, 0, 0, progress.num_context)

    def speeds(self) -> dict[Choice, Speed]:
        """Predict tokens per second for each choice that the request has."""
        found: dict[Choice, Speed] = {}
        if self._traits.may_be_off:
            seconds, error_s = self._seconds(OFF_CHOICE, 1)
            found[OFF_CHOICE] = Speed(1 / seconds, error_s / seconds)
        if self._traits.max_copy_tokens:
            found[COPY_CHOICE] = self._speed(COPY_CHOICE, _OwnRounds())
        for candidate in self._traits.candidates:
            if not candidate.is_head or self._progress.can_read:
                found.update(self._speeds_of(candidate))
        return found

    def _speeds_of(self, candidate: Candidate) -> dict[Choice, Speed]:
        """Predict the speeds of all draft lengths of one drafter."""
        drafter, num_context = EstimatedDrafter(candidate.name), self._progress.num_context
        own = self._estimate(drafter, candidate.depth(candidate.lengths[-1]))
        reading_s = 0.0
        if self._progress.must_read(candidate):
            reading_s = self._costs.reading_s(
                candidate.name, num_context, is_head=candidate.is_head
            )
        found = {}
        for length in candidate.lengths:
            depth, choice = candidate.depth(length), Choice(candidate.name, length)
            tokens = own.expected_tokens(depth)
            rounds = _OwnRounds(
                tokens=tokens,
                error=own.expected_tokens(depth, 1) - tokens,
                num_draft_tokens=own.proposes * length,
                head_depth=depth if candidate.is_head else 0,
            )
            found[choice] = self._speed(choice, rounds, reading_s)
        return found

    def _speed(self, choice: Choice, rounds: _OwnRounds, reading_s: float = 0.0) -> Speed:
        """Predict the speed of rounds with this choice, some of which verify a copy."""
        copies = self._copies(rounds.head_depth)
        share = copies.share_beside(rounds.tokens)
        # A head makes its next draft in each pass, a draft engine only for rounds without a copy.
        beside = choice if rounds.head_depth else COPY_CHOICE
        own_s, own_error_s = self._seconds(choice, 1 + rounds.num_draft_tokens)
        copy_s, copy_error_s = (
            self._seconds(beside, 1 + copies.num_draft_tokens) if share else (0, 0)
        )
        round_tokens = share * copies.tokens + (1 - share) * rounds.tokens
        round_s = share * copy_s + (1 - share) * own_s
        token_s = round_s / round_tokens + reading_s / self._num_expected
        error_s = share * copy_error_s + (1 - share) * own_error_s
        tokens_error = (1 - share) * rounds.error / round_tokens
        return Speed(1 / token_s, math.hypot(tokens_error, error_s / round_s))

    def _seconds(self, choice: Choice, num_rows: float) -> tuple[float, float]:
        return self._costs.predict(self._plain.with_drafter(choice, num_rows), self._now_s)

    def _copies(self, head_depth: int) -> _Copies:
        """Return the copies used beside a head's draft of `head_depth`; 0 if no head drafts."""
        if self._traits.max_copy_tokens <= least_beyond(head_depth):
            return NO_COPIES
        return self._long_copies if head_depth else self._any_copies

    @cached_property
    def _any_copies(self) -> _Copies:
        return self._copies_of(COPIES)

    @cached_property
    def _long_copies(self) -> _Copies:
        return self._copies_of(LONG_COPIES)

    def _copies_of(self, drafter: EstimatedDrafter) -> _Copies:
        found = self._estimate(drafter, 0)
        return _Copies(found.proposes, 1 + found.mean_accepted, found.mean_drafted)

    def _estimate(self, drafter: EstimatedDrafter, num_positions: int) -> Acceptance:
        traits = self._traits
        return self._acceptance.estimate(
            traits.task, drafter, traits.band, self._now_s, num_positions
        )
