"""Who drafts and how much: the choice that promises most tokens per second at the present load.

What a choice promises is worked out in outlook.py. With many in flight guesses stop paying by
themselves, and the choice is the target alone. A choice is left only for a gain that matters, and
now and then a request begins with one that is little known, as long as it could be better.
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
"""A choice is left for one that promises so many times as much."""

REVISIT_EVERY = 8
"""One trial in so many goes to the choice of which least is known, if it paid with all guesses
right."""

OPTIMISM, CERTAIN = 2.0, 1e6
"""Standard errors that a drafter is believed above its mean, when it is decided what to try."""

VARY_SHARE = 1 / 16
"""Of the choices that are made with a guess more or less: what a guess costs, and how often the one
behind the last stands, is seen only where lengths differ."""

ROUTED_ROUNDS = 32
"""In which the drafter that the operator sends a task to is asked, before it must be the best."""

FEW, MIN_TIMED_OF_MANY = 2, 24
"""With more than a few in flight, rounds of this load that were timed before its time is taken as
known. Two trials are enough."""

MIN_TIMED = 8
"""Steps of the target alone, and rounds that cost no guessing, before their time is taken as known;
until then trials go to them. One trial is enough for it, though its first step is not counted."""


class Controller:
    """Shared by all requests. Thread-safe."""

    def __init__(
        self,
        settings: ControlSettings,
        *,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`clock`: seconds since the epoch; `draw`: uniform in [0, 1)."""
        self.settings = settings
        self.book = AcceptanceBook()
        self.costs = CostModel()
        self._clock = clock
        self._draw = draw
        self.lock = threading.Lock()
        """Held around the book and the costs."""
        self._choices: dict[tuple[str, str, int], Choice] = {}
        """The last by task, band and load bucket."""
        self._tasks: dict[str, Task] = {}
        self._trials = Trials()

    # What a request asks.

    def is_drawn(self, share: float) -> bool:
        """By chance, so often."""
        return self._draw() < share

    def is_control(self) -> bool:
        """Whether the request that starts is one of the few that run plain, to compare with."""
        is_measuring = self.settings.mode not in (OFF, FIXED)
        return is_measuring and self.is_drawn(self.settings.control_share)

    def trial(self, situation: Situation, place: Place) -> Choice | None:
        """What the request that starts should begin with for a few rounds, to learn of it."""
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
        """One that `trial` began."""
        with self.lock:
            self._trials.end()

    def choose(self, situation: Situation, place: Place) -> Choice:
        """The choice for the next rounds of a request."""
        with self.lock:
            if self.settings.mode == AUTO:
                promised = self._speeds(self._timed_part(situation, place), place)
                chosen = self._best(situation, place, promised)
            else:
                promised = self._speeds(situation, place)
                chosen = self._by_rule(self.settings.mode, situation, place)
            self._note(situation, place, chosen, promised)
            return self._varied(situation, chosen) if promised else chosen

    # What it tells.

    def learn_round(
        self, situation: Situation, sample: Sample | None, offers: Sequence[Offer]
    ) -> None:
        """`sample`: None for a round whose time says nothing. `offers`: of those who were asked."""
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
        """Other versions of them are served."""
        with self.lock:
            for drafter in drafters:
                self.book.forget(drafter)

    def learn_prompt(self, num_prompt: int, seconds: float, *, has_head: bool) -> None:
        """See CostModel.add_prompt."""
        with self.lock:
            self.costs.add_prompt(num_prompt, seconds, has_head=has_head)

    def learn_first_draft(self, lead: str, num_prompt: int, seconds: float) -> None:
        """See CostModel.add_first_draft."""
        with self.lock:
            self.costs.add_first_draft(lead, num_prompt, seconds)

    def learn_request(
        self, task_label: str, seconds: float, num_tokens: int, *, is_control: bool | None
    ) -> None:
        """A request that ran to its end: what came behind its first tokens.

        `is_control`: None where it belongs to neither of the groups that are compared.
        """
        with self.lock:
            task = self._task(task_label)
            task.answered(seconds, num_tokens, is_control=is_control)

    def report(self, task_label: str) -> TaskReport | None:
        """None for a task of which nothing is known."""
        with self.lock:
            task = self._tasks.get(task_label)
            return None if task is None else task.report(self.book)

    # How it is decided; the lock is held.

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
            return default  # Or it would never be on again.
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
            # What was measured of a drafter may be forgotten, that it was measured is not.
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
        """First of all it is seen what there is to gain."""
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
        """What everything else is compared with, as long as it is hardly known."""
        if self.costs.num_streamed < MIN_TIMED and situation.may_be_off:
            return OFF_CHOICE
        # Beside a head, which reads along in a trial, such a round has no time of its own.
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
            return OFF_CHOICE if situation.may_be_off else None  # Nobody else tells its pace.
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
        """The candidate's lead with the number of guesses that is likely to be its best."""
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
        """Nothing as long as no pass was timed."""
        if not self.costs.is_known:
            return {}
        usual = self._task(situation.task).mean_tokens
        num_expected = max(1.0, min(usual or place.num_left, place.num_left))
        moment = Moment(self._clock(), num_expected, optimism)
        return speeds(self.book, self.costs, situation, place, moment)

    def _is_timed(self, situation: Situation, place: Place, choice: Choice) -> bool:
        """What was never timed looks as if it cost nothing: that is for trials to find out.

        Where many share the passes all would pay for a wrong belief, and what others do tells
        little of this load.
        """
        if choice.is_off:
            return True
        is_copying = choice.lead == COPY
        if place.num_inflight > FEW and situation.may_be_off:
            lead = None if is_copying else choice.lead
            return self.costs.num_timed(lead, place.num_inflight) >= MIN_TIMED_OF_MANY
        return is_copying or choice == situation.default or self.costs.is_timed(choice.lead)

    def _timed_part(self, situation: Situation, place: Place) -> Situation:
        """Without the leads that a crowd would not take anyhow: it chooses often."""
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
