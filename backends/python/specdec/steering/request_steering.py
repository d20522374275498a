"""The controller's part in one request: when to choose again, and what to learn from rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.steering.acceptance_estimates import DraftResult
from specdec.steering.choices import COPY_CHOICE, OFF_CHOICE, Candidate, Choice, RequestTraits
from specdec.steering.controller import Controller
from specdec.steering.estimates import PRIOR_ROUNDS
from specdec.steering.load import Activity, Load
from specdec.steering.predictions import RequestProgress

CHOOSE_EVERY = PRIOR_ROUNDS
"""Rounds from one choice to the next while the request speculates, and rounds or plain steps of a
trial; fewer would hardly change the estimates."""

OUTGROWN = 2
"""Growth of the load, as a factor, above which a choice is made again and a trial ends. All
requests in flight pay for what one of them does."""

FIRST_PLAIN_TOKENS = 64
"""Tokens without speculation before the controller chooses again; doubled whenever it stays off."""

NUM_TO_LOOK_BACK = FIRST_PLAIN_TOKENS + 2 * CHOOSE_EVERY
"""Most recent tokens searched for copies that could have been used: those since the last choice,
and those of a copy that was still going on then. With n requests in flight each of them looks back
with probability 1/n."""


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a round of the loop, or of one response without speculation."""

    seconds: float
    """Seconds since the previous round ended."""
    num_tokens: int
    """Confirmed tokens."""
    num_context: int
    """Tokens of the context before the round."""
    draft_results: tuple[DraftResult, ...] = ()
    """Results of the drafters that were asked; empty if the answer ended in this round."""
    num_rows: int = 1
    """Rows of the pass: the draft tokens and one."""
    candidate: Candidate | None = None
    """Draft engine or head that drafted while the round ran; None if neither did."""
    num_draft_tokens: int = 0
    """Draft tokens from `candidate`."""
    draft_s: float = 0.0
    """Seconds spent waiting for a draft engine; 0 for a head."""
    is_clean: bool = True
    """Whether the time is typical: no start of a call, no look back for copies, and no head that
    only read along."""
    has_head: bool | None = False
    """For the first round, whether a head read the prompt; None if it read without drafting."""


class RequestSteering:
    """Chooses drafter and draft length for one request; used by that request's thread only."""

    def __init__(
        self, controller: Controller, traits: RequestTraits, load: Load, num_prompt: int
    ) -> None:
        self._controller = controller
        self._traits = traits
        self._load = load
        self._num_prompt = num_prompt
        self._is_control = traits.may_be_off and controller.draw_control()
        self._choice: Choice | None = None
        self._num_left_of_choice = 0
        self._num_inflight = 0
        """Requests in flight when the choice was made."""
        self.is_trial = False
        self._num_rounds = 0
        self._is_reading = False
        self._num_plain = FIRST_PLAIN_TOKENS
        self._activity: Activity | None = None
        self._readers: set[str] = set()
        """Draft engines that have read the prompt."""
        self._seconds, self._num_tokens = 0.0, 0

    def choose(self, num_context: int, num_left: int, *, can_read: bool) -> Choice:
        """Return the choice for the round that begins, after choosing anew if `is_due`.

        If the choice is off, it holds for `num_plain` tokens. `can_read`: whether a head has read
        the whole context, or will read it with the prompt.
        """
        if self._choice is None:
            self._is_reading = True
            self._load.begin_reading()
        if self._choice is None or self.is_due:
            self._choice = self._choose_anew(num_context, num_left, can_read)
        return self._choice

    @property
    def is_due(self) -> bool:
        """Whether the round that begins needs a new choice."""
        is_outgrown = self._load.num_inflight > OUTGROWN * self._num_inflight
        return self._choice is None or self._num_left_of_choice <= 0 or is_outgrown

    @property
    def num_plain(self) -> int | None:
        """Tokens to generate without speculation; None for all that are left."""
        if self._is_control or self._traits.is_fixed:
            return None
        if self.is_trial:
            return CHOOSE_EVERY
        return self._num_plain

    def learn_round(self, result: RoundResult) -> None:
        """Learn from a round."""
        is_off = self._choice is not None and self._choice.is_off
        num_passes = max(1, result.num_tokens) if is_off else 1
        self._num_left_of_choice -= num_passes
        is_first = self._num_rounds == 0
        self._num_rounds += 1
        self._end_reading()
        if self._choice is not None:
            self._become(Activity(self._choice, result.num_rows - 1))
        if is_first:
            if result.has_head is not None:
                self._controller.learn_prompt(
                    self._num_prompt, result.seconds, has_head=result.has_head
                )
            return
        self._seconds += result.seconds
        self._num_tokens += result.num_tokens
        self._learn(result, is_off, num_passes)

    @property
    def looks_back(self) -> bool:
        """Whether the request reports what copy drafters would have proposed."""
        # A request that names a drafter may use fewer copy drafters than `auto` does.
        return not (self._is_control or self._traits.is_fixed)

    def draw_num_to_look_back(self) -> int:
        """Return how many tokens to look back at, by chance 0 for most requests at high load."""
        is_drawn = self._controller.draw(1 / self._load.num_inflight)
        return NUM_TO_LOOK_BACK if is_drawn else 0

    def learn_copies(self, results: Sequence[DraftResult]) -> None:
        """Learn what copy drafters would have proposed for the latest tokens."""
        if results:
            self._controller.learn_drafts(self._traits, results)

    def finish(self) -> None:
        """Report to the controller that the request ran to its end."""
        is_compared = self._traits.may_be_off
        self._controller.learn_request(
            self._traits.task,
            self._seconds,
            self._num_tokens,
            is_control=self._is_control if is_compared else None,
        )

    def leave(self) -> None:
        """Leave the load and any trial; to be called however the request ends."""
        if self.is_trial:
            self.is_trial = False
            self._controller.end_trial()
        self._end_reading()
        self._become(None)

    def _end_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._load.end_reading()

    def _become(self, activity: Activity | None) -> None:
        if activity != self._activity:
            self._load.change(self._activity, activity)
            self._activity = activity

    def _choose_anew(self, num_context: int, num_left: int, can_read: bool) -> Choice:
        self._num_inflight = self._load.num_inflight
        if self._is_control:
            self._num_left_of_choice = num_left
            return OFF_CHOICE
        progress = RequestProgress(
            num_inflight=self._num_inflight,
            num_context=num_context,
            num_left=num_left,
            is_start=self._num_rounds == 0,
            can_read=can_read,
            readers=frozenset(self._readers),
        )
        if self._traits.is_fixed:
            self._num_left_of_choice = num_left
            return self._traits.default
        if self.is_trial:
            self._controller.end_trial()
        was_off = self._choice is not None and self._choice.is_off and not self.is_trial
        self.is_trial = False
        if progress.is_start:
            tried = self._controller.begin_trial(self._traits, progress)
            if tried is not None:
                self.is_trial = True
                self._num_left_of_choice = CHOOSE_EVERY
                return tried
        chosen = self._controller.choose(self._traits, progress)
        self._num_plain = 2 * self._num_plain if was_off and chosen.is_off else FIRST_PLAIN_TOKENS
        self._num_left_of_choice = self._num_plain if chosen.is_off else CHOOSE_EVERY
        return chosen

    def _learn(self, result: RoundResult, is_off: bool, num_passes: int) -> None:
        load, candidate = self._load, result.candidate
        # With n requests in flight each reports one round in n; together that is enough.
        num_inflight = load.num_inflight
        is_reported = num_inflight == 1 or self.is_trial or self._controller.draw(1 / num_inflight)
        if candidate is not None and not candidate.is_head and candidate.name not in self._readers:
            self._readers.add(candidate.name)
            self._controller.learn_first_draft(candidate.name, result.num_context, result.draft_s)
        elif is_reported and result.is_clean:
            choice = OFF_CHOICE if is_off else COPY_CHOICE
            if candidate is not None:
                choice = Choice(candidate.name, result.num_draft_tokens)
            step = load.step(choice, result.num_context)
            self._controller.learn_step(step, result.seconds / num_passes)
        results = result.draft_results
        if not self.looks_back:
            results = tuple(each for each in results if not each.drafter.is_copy)
        if results:
            self._controller.learn_drafts(self._traits, results)
