"""The controller's part in one request: when a choice is made again, and what is learned of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.control.acceptance_book import Offer
from specdec.control.choices import COPY, OFF_CHOICE, Choice, Lead, Situation
from specdec.control.controller import Controller
from specdec.control.costs import Sample
from specdec.control.outlook import Place
from specdec.control.traffic import Activity, Traffic

CHOOSE_EVERY = 8
"""Rounds that a choice stands."""

TRIAL_ROUNDS = 16
"""Rounds of a trial, or steps of the target alone."""

OUTGROWN = 2
"""With more than so many times the requests in flight a choice is made again, and a trial given up:
what one stream can afford costs every stream of a crowd."""

NUM_TO_LOOK_BACK = 80
"""Tokens for which it is seen what copying would have found, a stretch and a copy that reached its
end; of many requests in flight each does it the less often."""

FIRST_STRETCH = 64
"""Tokens that are asked of the target alone before it is considered again; then twice as many."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a round of the loop, or steps of the target alone, came to."""

    seconds: float
    """Since the last one ended."""
    num_tokens: int
    num_context: int
    """Before it."""
    offers: tuple[Offer, ...] = ()
    """Of those who were asked, where the answer did not end in it."""
    num_rows: int = 1
    """Of the pass: the drafted tokens and one."""
    lead: Lead | None = None
    """Who made guesses in it."""
    num_drafted: int = 0
    """Guesses that were made in it, by the lead."""
    draft_s: float = 0.0
    is_clean: bool = True
    """Its time is that of its kind: no prompt was read in it, and no head read along in vain."""
    has_head: bool | None = False
    """If it is the first: a head that guesses read the prompt too; None: one that does not."""


class Steering:
    """Of one request, on its thread."""

    def __init__(
        self, controller: Controller, situation: Situation, traffic: Traffic, num_prompt: int
    ) -> None:
        self._controller = controller
        self._situation = situation
        self._traffic = traffic
        self._num_prompt = num_prompt
        self._is_control = situation.may_be_off and controller.is_control()
        self._choice: Choice | None = None
        self._num_left_of_choice = 0
        self._num_inflight = 0
        """When the choice was made."""
        self.is_trial = False
        self._num_rounds = 0
        self._is_reading = False
        self._stretch = FIRST_STRETCH
        self._activity: Activity | None = None
        self._readers: set[str] = set()
        """Draft engines that have read the prompt."""
        self._seconds, self._num_tokens = 0.0, 0

    def choice(self, num_context: int, num_left: int, *, can_read: bool) -> Choice:
        """For the round that begins; of an OFF_CHOICE `stretch` says how far."""
        if self._choice is None:
            self._is_reading = True
            self._traffic.read(1)
        if self._choice is None or self.is_due:
            self._choice = self._choose(num_context, num_left, can_read)
        return self._choice

    @property
    def is_due(self) -> bool:
        """A choice is made with the round that begins."""
        is_outgrown = self._traffic.num_inflight > OUTGROWN * self._num_inflight
        return self._choice is None or self._num_left_of_choice <= 0 or is_outgrown

    @property
    def stretch(self) -> int | None:
        """Tokens of the target alone; None for all that are left."""
        if self._is_control or self._situation.is_fixed:
            return None
        if self.is_trial:
            return TRIAL_ROUNDS
        return self._stretch

    def seen(self, seen: Seen) -> None:
        """Learns from a round."""
        is_off = self._choice is not None and self._choice.is_off
        num_steps = max(1, seen.num_tokens) if is_off else 1
        self._num_left_of_choice -= num_steps
        is_first = self._num_rounds == 0
        self._num_rounds += 1
        self._end_reading()
        if self._choice is not None:
            self._become(Activity(self._choice, seen.num_rows - 1))
        if is_first:
            if seen.has_head is not None:
                self._controller.learn_prompt(
                    self._num_prompt, seen.seconds, has_head=seen.has_head
                )
            return
        self._seconds += seen.seconds
        self._num_tokens += seen.num_tokens
        self._learn(seen, is_off, num_steps)

    @property
    def looks_back(self) -> bool:
        """Whether what copying finds in its text is told."""
        # Of who asks for a drafter the copying may be another's.
        return not (self._is_control or self._situation.is_fixed)

    @property
    def num_to_look_back(self) -> int:
        """Tokens, at most."""
        is_drawn = self._controller.is_drawn(1 / self._traffic.num_inflight)
        return NUM_TO_LOOK_BACK if is_drawn else 0

    def looked_back(self, offers: Sequence[Offer]) -> None:
        """What copying finds in what was said."""
        if offers:
            self._controller.learn_round(self._situation, None, offers)

    def finish(self) -> None:
        """The request ran to its end."""
        is_compared = self._situation.may_be_off
        self._controller.learn_request(
            self._situation.task,
            self._seconds,
            self._num_tokens,
            is_control=self._is_control if is_compared else None,
        )

    def leave(self) -> None:
        """The request is over, whatever became of it."""
        if self.is_trial:
            self.is_trial = False
            self._controller.trial_is_over()
        self._end_reading()
        self._become(None)

    def _end_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._traffic.read(-1)

    def _become(self, activity: Activity | None) -> None:
        if activity != self._activity:
            self._traffic.change(self._activity, activity)
            self._activity = activity

    def _choose(self, num_context: int, num_left: int, can_read: bool) -> Choice:
        self._num_inflight = self._traffic.num_inflight
        if self._is_control:
            self._num_left_of_choice = num_left
            return OFF_CHOICE
        place = Place(
            num_inflight=self._num_inflight,
            num_context=num_context,
            num_left=num_left,
            is_start=self._num_rounds == 0,
            can_read=can_read,
        )
        if self._situation.is_fixed:
            self._num_left_of_choice = num_left
            return self._situation.default
        if self.is_trial:
            self._controller.trial_is_over()
        was_off = self._choice is not None and self._choice.is_off and not self.is_trial
        self.is_trial = False
        if place.is_start:
            tried = self._controller.trial(self._situation, place)
            if tried is not None:
                self.is_trial = True
                self._num_left_of_choice = TRIAL_ROUNDS
                return tried
        chosen = self._controller.choose(self._situation, place)
        self._stretch = 2 * self._stretch if was_off and chosen.is_off else FIRST_STRETCH
        self._num_left_of_choice = self._stretch if chosen.is_off else CHOOSE_EVERY
        return chosen

    def _learn(self, seen: Seen, is_off: bool, num_steps: int) -> None:
        traffic, lead = self._traffic, seen.lead
        # Under load each request tells of one round in so many: together they tell enough.
        num_inflight = traffic.num_inflight
        is_rare = num_inflight <= 2 or self.is_trial
        is_told = is_rare or self._controller.is_drawn(1 / num_inflight)
        is_told = traffic.is_settled() and is_told
        draft_s, sample = seen.draft_s, None
        if lead is not None and not lead.is_head and lead.name not in self._readers:
            self._readers.add(lead.name)
            self._controller.learn_first_draft(lead.name, seen.num_context, draft_s)
        elif is_told and seen.is_clean:
            sample = Sample(
                num_inflight=traffic.num_inflight,
                num_looping=traffic.num_looping,
                num_rows=traffic.num_inflight + traffic.num_extra_rows,
                num_context=seen.num_context,
                is_streamed=is_off,
                target_s=(seen.seconds - draft_s) / num_steps,
                lead=None if lead is None else lead.name,
                num_drafted=seen.num_drafted,
                num_drafting=1 if lead is None else max(1, traffic.num_with(lead.name)),
                draft_s=draft_s,
                is_head=lead is not None and lead.is_head,
            )
        offers = seen.offers
        if not self.looks_back:
            offers = tuple(each for each in offers if not each.drafter.startswith(COPY))
        if sample is not None or offers:
            self._controller.learn_round(self._situation, sample, offers)
