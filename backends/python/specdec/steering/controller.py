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

from specdec.steering.acceptance_estimates import AcceptanceEstimates, DraftResult
from specdec.steering.choices import COPY, OFF_CHOICE, Choice, RequestTraits
from specdec.steering.costs import CostModel, Sample, load_bucket
from specdec.steering.modes import (
    ARTICLE,
    AUTO,
    DEPLOY_ABOVE,
    FIXED,
    OFF,
    SKIP_BELOW,
    scheduled,
)
from specdec.steering.predictions import PredictionParameters, RequestProgress, speeds
from specdec.steering.settings import ControlSettings
from specdec.steering.tasks import Task, TaskReport
from specdec.steering.trials import TRIAL_EVERY, Trials

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
        self.book = AcceptanceEstimates()
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

    def trial(self, traits: RequestTraits, place: RequestProgress) -> Choice | None:
        """What the request that starts should begin with for a few rounds, to learn of it."""
        with self.lock:
            if not self._trials.is_due(traits.task, place.num_inflight):
                return None
            if self.settings.mode != AUTO or traits.is_fixed:
                return None
            if self._must_be_off(traits, place):
                return None
            tried = self._untimed(traits) or self._trial(traits, place)
            if tried is not None:
                self._trials.begin()
            return tried

    def trial_is_over(self) -> None:
        """One that `trial` began."""
        with self.lock:
            self._trials.end()

    def choose(self, traits: RequestTraits, place: RequestProgress) -> Choice:
        """The choice for the next rounds of a request."""
        with self.lock:
            if self.settings.mode == AUTO:
                promised = self._speeds(self._timed_part(traits, place), place)
                chosen = self._best(traits, place, promised)
            else:
                promised = self._speeds(traits, place)
                chosen = self._by_rule(self.settings.mode, traits, place)
            self._note(traits, place, chosen, promised)
            return self._varied(traits, chosen) if promised else chosen

    # What it tells.

    def learn_round(
        self, traits: RequestTraits, sample: Sample | None, offers: Sequence[DraftResult]
    ) -> None:
        """`sample`: None for a round whose time says nothing. `offers`: of those who were asked."""
        with self.lock:
            now_s = self._clock()
            task = self._task(traits.task)
            for offer in offers:
                task.drafters.add(offer.drafter)
                if traits.is_routed and offer.drafter == traits.default.lead:
                    task.num_routed += offer.num_rounds
                self.book.add(traits.task, traits.band, offer, now_s)
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

    def _by_rule(self, mode: str, traits: RequestTraits, place: RequestProgress) -> Choice:
        default = traits.default
        if mode == FIXED:
            return default
        if mode == ARTICLE:
            return self._by_article(traits)
        if mode == OFF:
            return OFF_CHOICE
        hour = time.localtime(self._clock()).tm_hour
        num_tokens = scheduled(self.settings.rules, place.num_inflight, hour)
        if not num_tokens:
            return OFF_CHOICE
        return traits.with_length(num_tokens)

    def _by_article(self, traits: RequestTraits) -> Choice:
        default = traits.default
        num_requests = self._trials.num_started(traits.task)
        if num_requests and num_requests % TRIAL_EVERY == 0:
            return default  # Or it would never be on again.
        rate = self.book.rate(traits.task, default.lead, max(1, default.num_tokens))
        if rate is None or rate > DEPLOY_ABOVE:
            return default
        if rate < SKIP_BELOW:
            return OFF_CHOICE
        return self._choices.get((traits.task, traits.band, 0), default)

    def _best(
        self, traits: RequestTraits, place: RequestProgress, promised: Mapping[Choice, float]
    ) -> Choice:
        if self._must_be_off(traits, place):
            return OFF_CHOICE
        if not promised:
            return traits.default
        if traits.is_routed:
            routed = traits.with_length(traits.default.num_tokens)
            # What was measured of a drafter may be forgotten, that it was measured is not.
            num_known = self._num_rounds(traits, routed.lead)
            num_asked = max(self._task(traits.task).num_routed, num_known)
            if num_asked < ROUTED_ROUNDS and routed in promised:
                return routed
        known = [each for each in promised if self._is_timed(traits, place, each)]
        best = max(known, key=lambda choice: promised[choice])
        last = self._choices.get(self._key(traits, place))
        if last is not None and last in promised and promised[best] < HYSTERESIS * promised[last]:
            return last
        return best

    def _must_be_off(self, traits: RequestTraits, place: RequestProgress) -> bool:
        """First of all it is seen what there is to gain."""
        is_shared = place.num_inflight > 1 and traits.may_be_off
        return is_shared and not self.costs.has_baseline(place.num_inflight)

    def _varied(self, traits: RequestTraits, chosen: Choice) -> Choice:
        lengths = next((each.lengths for each in traits.leads if each.name == chosen.lead), ())
        is_measured = self.settings.mode == AUTO and not traits.is_fixed
        if len(lengths) < 2 or not is_measured or self._draw() >= VARY_SHARE:
            return chosen
        place = lengths.index(chosen.num_tokens)
        near = [*lengths[max(0, place - 1) : place], *lengths[place + 1 : place + 2]]
        return Choice(chosen.lead, near[int(self._draw() * len(near))])

    def _untimed(self, traits: RequestTraits) -> Choice | None:
        """What everything else is compared with, as long as it is hardly known."""
        if self.costs.num_streamed < MIN_TIMED and traits.may_be_off:
            return OFF_CHOICE
        # Beside a head, which reads along in a trial, such a round has no time of its own.
        is_alone = not any(each.is_head for each in traits.leads)
        if self.costs.num_looped < MIN_TIMED and traits.has_copying and is_alone:
            return Choice(COPY)
        return None

    def _trial(self, traits: RequestTraits, place: RequestProgress) -> Choice | None:
        promised = self._speeds(traits, place)
        if not promised:
            return None
        best = self._best(traits, place, promised)
        task = self._task(traits.task)
        task.num_trials += 1
        is_revisit = task.num_trials % REVISIT_EVERY == 0
        if is_revisit and not (self.settings.control_share or best.is_off):
            return OFF_CHOICE if traits.may_be_off else None  # Nobody else tells its pace.
        hoped = self._speeds(traits, place, CERTAIN if is_revisit else OPTIMISM)
        others = {
            each: speed
            for each, speed in hoped.items()
            if not each.is_off and each.lead != best.lead and speed > promised[best]
        }
        if not others:
            return None
        if is_revisit:
            known = {each: self._num_rounds(traits, each.lead) for each in others}
            least = min(known.values())
            others = {each: others[each] for each in known if known[each] == least}
        candidate = max(others, key=lambda choice: others[choice])
        return self._moderate(traits, candidate, promised)

    def _num_rounds(self, traits: RequestTraits, drafter: str) -> float:
        return self.book.num_rounds(traits.task, drafter, traits.band, self._clock())

    def _moderate(
        self, traits: RequestTraits, candidate: Choice, promised: Mapping[Choice, float]
    ) -> Choice:
        """The candidate's lead with the number of guesses that is likely to be its best."""
        lengths = next((e.lengths for e in traits.leads if e.name == candidate.lead), ())
        if not lengths:
            return candidate
        if not self.costs.is_timed(candidate.lead):
            return Choice(candidate.lead, lengths[min(1, len(lengths) - 1)])
        own = [Choice(candidate.lead, length) for length in lengths]
        return max(own, key=lambda choice: promised.get(choice, 0.0))

    def _speeds(
        self, traits: RequestTraits, place: RequestProgress, optimism: float = 0.0
    ) -> dict[Choice, float]:
        """Nothing as long as no pass was timed."""
        if not self.costs.is_known:
            return {}
        usual = self._task(traits.task).mean_tokens
        num_expected = max(1.0, min(usual or place.num_left, place.num_left))
        moment = PredictionParameters(self._clock(), num_expected, optimism)
        return speeds(self.book, self.costs, traits, place, moment)

    def _is_timed(self, traits: RequestTraits, place: RequestProgress, choice: Choice) -> bool:
        """What was never timed looks as if it cost nothing: that is for trials to find out.

        Where many share the passes all would pay for a wrong belief, and what others do tells
        little of this load.
        """
        if choice.is_off:
            return True
        is_copying = choice.lead == COPY
        if place.num_inflight > FEW and traits.may_be_off:
            lead = None if is_copying else choice.lead
            return self.costs.num_timed(lead, place.num_inflight) >= MIN_TIMED_OF_MANY
        return is_copying or choice == traits.default or self.costs.is_timed(choice.lead)

    def _timed_part(self, traits: RequestTraits, place: RequestProgress) -> RequestTraits:
        """Without the leads that a crowd would not take anyhow: it chooses often."""
        if place.num_inflight <= FEW or not traits.may_be_off:
            return traits
        leads = (e for e in traits.leads if self._is_timed(traits, place, Choice(e.name)))
        return replace(traits, leads=tuple(leads))

    def _note(
        self,
        traits: RequestTraits,
        place: RequestProgress,
        chosen: Choice,
        promised: Mapping[Choice, float],
    ) -> None:
        self._choices[self._key(traits, place)] = chosen
        gain = 1.0
        if chosen in promised and OFF_CHOICE in promised:
            gain = promised[chosen] / promised[OFF_CHOICE]
        self._task(traits.task).chosen(chosen, gain)

    def _key(self, traits: RequestTraits, place: RequestProgress) -> tuple[str, str, int]:
        bucket = load_bucket(place.num_inflight) if self.settings.mode == AUTO else 0
        return traits.task, traits.band, bucket

    def _task(self, label: str) -> Task:
        if label not in self._tasks:
            self._tasks[label] = Task(label)
        return self._tasks[label]
