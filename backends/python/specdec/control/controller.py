"""The controller: for each request, the drafter and k with the most tokens per second at this load.

`outlook.py` predicts the speed of each choice. With many requests in flight drafts stop paying, and
the choice is off. A choice changes only for a gain that matters. Now and then a request begins with
a trial: a choice about which little is known and which could be faster.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from specdec.control.acceptance_book import AcceptanceBook, Offer
from specdec.control.choices import COPY, OFF_CHOICE, Choice, Situation
from specdec.control.costs import CostModel, Sample, load_bucket
from specdec.control.modes import (
    ARTICLE,
    AUTO,
    DEPLOY_ABOVE,
    FIXED,
    OFF,
    SKIP_BELOW,
    scheduled,
)
from specdec.control.outlook import Moment, Place, speeds
from specdec.control.settings import ControlSettings
from specdec.control.tasks import Task, TaskReport
from specdec.control.trials import TRIAL_EVERY, Trials

HYSTERESIS = 1.02
"""Predicted speed of another choice ÷ that of the last one, from which the controller switches."""

REVISIT_EVERY = 8
"""Trials of a task from one revisit to the next. A revisit tries the drafter with the fewest
rounds that would be faster with nearly all drafts accepted; without a control group, it is off."""

OPTIMISM, CERTAIN = 2.0, 1e6
"""Standard errors added to acceptance estimates to select a trial: an ordinary one, and a revisit,
which assumes the highest acceptance."""

VARY_SHARE = 1 / 16
"""Share of choices that use the next longer or shorter draft instead. The cost of a draft token and
the acceptance of later positions show only where lengths differ."""

ROUTED_ROUNDS = 32
"""Rounds of a task that use the drafter named by the operator, before the fastest is chosen."""

FEW, MIN_TIMED_OF_MANY = 2, 24
"""With more than FEW requests in flight, a drafter's cost is known after MIN_TIMED_OF_MANY timed
rounds at this load. Two trials are enough."""

MIN_TIMED = 8
"""Timed plain steps, and timed rounds without a draft pass, from which their time is known. Until
then trials go to them. One trial is enough, although its first step is not counted."""


class Controller:
    """The controller of all requests. Thread-safe."""

    def __init__(
        self,
        settings: ControlSettings,
        *,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Begin without measurements.

        `clock` returns seconds since the epoch, `draw` a random number in [0, 1).
        """
        self.settings = settings
        self.book = AcceptanceBook()
        self.costs = CostModel()
        self._clock = clock
        self._draw = draw
        self.lock = threading.Lock()
        """Lock for all state here, `book` and `costs` included."""
        self._choices: dict[tuple[str, str, int], Choice] = {}
        """Last choice by task, band and load bucket; bucket 0 in modes other than `auto`."""
        self._tasks: dict[str, Task] = {}
        self._trials = Trials()

    # Decisions for requests.

    def is_drawn(self, share: float) -> bool:
        """Draw a random number, and return True with probability `share`."""
        return self._draw() < share

    def is_control(self) -> bool:
        """Decide by chance whether a starting request belongs to the control group."""
        is_measuring = self.settings.mode not in (OFF, FIXED)
        return is_measuring and self.is_drawn(self.settings.control_share)

    def trial(self, situation: Situation, place: Place) -> Choice | None:
        """Count a starting request, and return the choice of its trial; None for no trial.

        After a trial the caller must call `trial_is_over`.
        """
        with self.lock:
            if not self._trials.is_due(situation.task, place.num_inflight):
                return None
            if self.settings.mode != AUTO or situation.is_fixed:
                return None
            if self._must_be_off(situation, place):
                return None
            tried = self._untimed(situation) or self._trial(situation, place)
            if tried is not None:
                self._trials.begin()
            return tried

    def trial_is_over(self) -> None:
        """End a trial that `trial` began."""
        with self.lock:
            self._trials.end()

    def choose(self, situation: Situation, place: Place) -> Choice:
        """Return the choice for the next rounds of a request."""
        with self.lock:
            if self.settings.mode == AUTO:
                promised = self._speeds(self._timed_part(situation, place), place)
                chosen = self._best(situation, place, promised)
            else:
                promised = self._speeds(situation, place)
                chosen = self._by_rule(self.settings.mode, situation, place)
            self._note(situation, place, chosen, promised)
            return self._varied(situation, chosen) if promised else chosen

    # Learning and reporting.

    def learn_round(
        self, situation: Situation, sample: Sample | None, offers: Sequence[Offer]
    ) -> None:
        """Learn from a round.

        `sample` is None if the round's time must not count. `offers` has the results of the
        drafters that were asked.
        """
        with self.lock:
            now_s = self._clock()
            task = self._task(situation.task)
            for offer in offers:
                task.drafters.add(offer.drafter)
                if situation.is_routed and offer.drafter == situation.default.lead:
                    task.num_routed += offer.num_rounds
                self.book.add(situation.task, situation.band, offer, now_s)
            if sample is not None:
                self.costs.add(sample)

    def renew(self, drafters: Iterable[str]) -> None:
        """Forget the acceptance of drafters that were replaced by other versions."""
        with self.lock:
            for drafter in drafters:
                self.book.forget(drafter)

    def learn_prompt(self, num_prompt: int, seconds: float, *, has_head: bool) -> None:
        """Learn the time of a first round: see `CostModel.add_prompt`."""
        with self.lock:
            self.costs.add_prompt(num_prompt, seconds, has_head=has_head)

    def learn_first_draft(self, lead: str, num_prompt: int, seconds: float) -> None:
        """Learn the time of an engine's first draft: see `CostModel.add_first_draft`."""
        with self.lock:
            self.costs.add_first_draft(lead, num_prompt, seconds)

    def learn_request(
        self, task_label: str, seconds: float, num_tokens: int, *, is_control: bool | None
    ) -> None:
        """Learn from a request that ran to its end.

        `seconds` and `num_tokens` are without its first round. `is_control` is True for the control
        group, and None for a request that does not count in the comparison.
        """
        with self.lock:
            task = self._task(task_label)
            task.answered(seconds, num_tokens, is_control=is_control)

    def report(self, task_label: str) -> TaskReport | None:
        """Return the report of a task, which restarts its count of switches; None if unknown."""
        with self.lock:
            task = self._tasks.get(task_label)
            return None if task is None else task.report(self.book)

    # The decision itself. Callers hold the lock.

    def _by_rule(self, mode: str, situation: Situation, place: Place) -> Choice:
        default = situation.default
        if mode == FIXED:
            return default
        if mode == ARTICLE:
            return self._by_article(situation)
        if mode == OFF:
            return OFF_CHOICE
        hour = time.localtime(self._clock()).tm_hour
        num_tokens = scheduled(self.settings.rules, place.num_inflight, hour)
        if not num_tokens:
            return OFF_CHOICE
        return situation.with_length(num_tokens)

    def _by_article(self, situation: Situation) -> Choice:
        default = situation.default
        num_requests = self._trials.num_started(situation.task)
        if num_requests and num_requests % TRIAL_EVERY == 0:
            return default  # While a task is off, only this measures its acceptance.
        rate = self.book.rate(situation.task, default.lead, max(1, default.num_tokens))
        if rate is None or rate > DEPLOY_ABOVE:
            return default
        if rate < SKIP_BELOW:
            return OFF_CHOICE
        return self._choices.get((situation.task, situation.band, 0), default)

    def _best(self, situation: Situation, place: Place, promised: Mapping[Choice, float]) -> Choice:
        if self._must_be_off(situation, place):
            return OFF_CHOICE
        if not promised:
            return situation.default
        if situation.is_routed:
            routed = situation.with_length(situation.default.num_tokens)
            # Estimates decay with time, so the rounds asked of the drafter are counted apart.
            num_known = self._num_rounds(situation, routed.lead)
            num_asked = max(self._task(situation.task).num_routed, num_known)
            if num_asked < ROUTED_ROUNDS and routed in promised:
                return routed
        known = [each for each in promised if self._is_timed(situation, place, each)]
        best = max(known, key=lambda choice: promised[choice])
        last = self._choices.get(self._key(situation, place))
        if last is not None and last in promised and promised[best] < HYSTERESIS * promised[last]:
            return last
        return best

    def _must_be_off(self, situation: Situation, place: Place) -> bool:
        """Return whether to run without speculation, to measure its pace at this load first."""
        is_shared = place.num_inflight > 1 and situation.may_be_off
        return is_shared and not self.costs.has_baseline(place.num_inflight)

    def _varied(self, situation: Situation, chosen: Choice) -> Choice:
        lengths = next((each.lengths for each in situation.leads if each.name == chosen.lead), ())
        is_measured = self.settings.mode == AUTO and not situation.is_fixed
        if len(lengths) < 2 or not is_measured or self._draw() >= VARY_SHARE:
            return chosen
        place = lengths.index(chosen.num_tokens)
        near = [*lengths[max(0, place - 1) : place], *lengths[place + 1 : place + 2]]
        return Choice(chosen.lead, near[int(self._draw() * len(near))])

    def _untimed(self, situation: Situation) -> Choice | None:
        """Return a choice that the others are compared with and whose time is hardly known."""
        if self.costs.num_streamed < MIN_TIMED and situation.may_be_off:
            return OFF_CHOICE
        # If there is a head, it reads along in a trial, so a round without it cannot be timed.
        is_alone = not any(each.is_head for each in situation.leads)
        if self.costs.num_looped < MIN_TIMED and situation.has_copying and is_alone:
            return Choice(COPY)
        return None

    def _trial(self, situation: Situation, place: Place) -> Choice | None:
        promised = self._speeds(situation, place)
        if not promised:
            return None
        best = self._best(situation, place, promised)
        task = self._task(situation.task)
        task.num_trials += 1
        is_revisit = task.num_trials % REVISIT_EVERY == 0
        if is_revisit and not (self.settings.control_share or best.is_off):
            # Without a control group, only trials measure the pace without speculation.
            return OFF_CHOICE if situation.may_be_off else None
        hoped = self._speeds(situation, place, CERTAIN if is_revisit else OPTIMISM)
        others = {
            each: speed
            for each, speed in hoped.items()
            if not each.is_off and each.lead != best.lead and speed > promised[best]
        }
        if not others:
            return None
        if is_revisit:
            known = {each: self._num_rounds(situation, each.lead) for each in others}
            least = min(known.values())
            others = {each: others[each] for each in known if known[each] == least}
        candidate = max(others, key=lambda choice: others[choice])
        return self._moderate(situation, candidate, promised)

    def _num_rounds(self, situation: Situation, drafter: str) -> float:
        return self.book.num_rounds(situation.task, drafter, situation.band, self._clock())

    def _moderate(
        self, situation: Situation, candidate: Choice, promised: Mapping[Choice, float]
    ) -> Choice:
        """Return the candidate's drafter with its fastest k, or a short draft if never timed."""
        lengths = next((e.lengths for e in situation.leads if e.name == candidate.lead), ())
        if not lengths:
            return candidate
        if not self.costs.is_timed(candidate.lead):
            return Choice(candidate.lead, lengths[min(1, len(lengths) - 1)])
        own = [Choice(candidate.lead, length) for length in lengths]
        return max(own, key=lambda choice: promised.get(choice, 0.0))

    def _speeds(
        self, situation: Situation, place: Place, optimism: float = 0.0
    ) -> dict[Choice, float]:
        """Predict tokens per second by choice; return none until a pass has been timed."""
        if not self.costs.is_known:
            return {}
        usual = self._task(situation.task).mean_tokens
        num_expected = max(1.0, min(usual or place.num_left, place.num_left))
        moment = Moment(self._clock(), num_expected, optimism)
        return speeds(self.book, self.costs, situation, place, moment)

    def _is_timed(self, situation: Situation, place: Place, choice: Choice) -> bool:
        """Return whether the cost of a choice is known well enough to make it outside a trial.

        A drafter that was never timed seems to cost nothing. With many requests in flight all of
        them would pay for a wrong cost, and rounds at other loads say little about this one.
        """
        if choice.is_off:
            return True
        is_copying = choice.lead == COPY
        if place.num_inflight > FEW and situation.may_be_off:
            lead = None if is_copying else choice.lead
            return self.costs.num_timed(lead, place.num_inflight) >= MIN_TIMED_OF_MANY
        return is_copying or choice == situation.default or self.costs.is_timed(choice.lead)

    def _timed_part(self, situation: Situation, place: Place) -> Situation:
        """Leave out drafters with unknown cost at a high load, where choices are frequent.

        They would not be chosen anyway, and predicting their speed takes time.
        """
        if place.num_inflight <= FEW or not situation.may_be_off:
            return situation
        leads = (e for e in situation.leads if self._is_timed(situation, place, Choice(e.name)))
        return replace(situation, leads=tuple(leads))

    def _note(
        self, situation: Situation, place: Place, chosen: Choice, promised: Mapping[Choice, float]
    ) -> None:
        self._choices[self._key(situation, place)] = chosen
        gain = 1.0
        if chosen in promised and OFF_CHOICE in promised:
            gain = promised[chosen] / promised[OFF_CHOICE]
        self._task(situation.task).chosen(chosen, gain)

    def _key(self, situation: Situation, place: Place) -> tuple[str, str, int]:
        bucket = load_bucket(place.num_inflight) if self.settings.mode == AUTO else 0
        return situation.task, situation.band, bucket

    def _task(self, label: str) -> Task:
        if label not in self._tasks:
            self._tasks[label] = Task(label)
        return self._tasks[label]
