"""The controller: chooses the drafter and draft length with most tokens per second.

predictions.py predicts the speed of each choice. With many requests in flight drafts stop paying by
themselves, and the choice is to run without speculation. Now and then a request begins with a trial
of another drafter: the one that could be the fastest, if its speed were at its upper bound.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from specdec.steering.acceptance_estimates import AcceptanceEstimates, DraftResult, drafters_of
from specdec.steering.choices import OFF_CHOICE, Choice, EstimatedDrafter, RequestTraits
from specdec.steering.costs import CostEstimates
from specdec.steering.estimates import PRIOR_ROUNDS
from specdec.steering.modes import (
    ARTICLE_MODE,
    AUTO_MODE,
    DEPLOY_ABOVE,
    FIXED_MODE,
    OFF_MODE,
    SKIP_BELOW,
    scheduled,
)
from specdec.steering.predictions import Predictor, RequestProgress, Speed
from specdec.steering.settings import ControlSettings
from specdec.steering.steps import Step
from specdec.steering.tasks import TaskReport, TaskState

TRIAL_EVERY = 16
"""Requests of a task from one trial to the next, if there is anything to learn. A new task's 2nd,
4th and 8th requests may begin with a trial too. With n requests in flight, trials are n times
rarer, because all requests in a pass pay for a trial."""

KNOWN_ROUNDS = PRIOR_ROUNDS
"""Timed rounds of a drafter at a load before it is chosen there, other than by trials."""

ROUTED_ROUNDS = 2 * PRIOR_ROUNDS
"""Rounds of the drafter that the operator names for a task, before another may be chosen."""


class Controller:
    """Chooses for all requests, and learns from them. Thread-safe."""

    def __init__(
        self,
        settings: ControlSettings,
        *,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`clock`: seconds since the epoch; `draw`: uniform in [0, 1)."""
        self.settings = settings
        self._rules = settings.rules
        self.acceptance = AcceptanceEstimates()
        self.costs = CostEstimates()
        self._clock = clock
        self._draw = draw
        self._lock = threading.Lock()
        self._article_choices: dict[tuple[str, str], Choice] = {}
        """Latest choice of the mode `article` by task and band."""
        self._tasks: dict[str, TaskState] = {}
        self._has_trial = False
        """Whether a trial is running."""

    # Questions of a request.

    def draw(self, share: float) -> bool:
        """Decide by chance, with probability `share`."""
        return self._draw() < share

    def draw_control(self) -> bool:
        """Decide by chance whether a request that starts belongs to the control group."""
        has_control = self.settings.mode not in (OFF_MODE, FIXED_MODE)
        return has_control and self.draw(self.settings.control_share)

    def begin_trial(self, traits: RequestTraits, progress: RequestProgress) -> Choice | None:
        """Count a request that starts; return the choice of its trial, or None for no trial."""
        with self._lock:
            task = self._task(traits.task)
            task.num_started += 1
            number, rest = divmod(task.num_started, progress.num_inflight)
            is_young = 1 < number < TRIAL_EVERY and number & (number - 1) == 0
            if rest or not (is_young or number % TRIAL_EVERY == 0) or self._has_trial:
                return None
            if self.settings.mode != AUTO_MODE or traits.is_fixed:
                return None
            if self._must_be_off(traits, progress):
                return None
            tried = self._trial(traits, progress)
            self._has_trial = tried is not None
            return tried

    def end_trial(self) -> None:
        """End a trial that `begin_trial` began."""
        with self._lock:
            self._has_trial = False

    def choose(self, traits: RequestTraits, progress: RequestProgress) -> Choice:
        """Return the choice for the next rounds of a request."""
        with self._lock:
            speeds = self._speeds(traits, progress)
            if self.settings.mode == AUTO_MODE:
                chosen = self._best(traits, progress, speeds)
            else:
                chosen = self._by_rule(self.settings.mode, traits, progress)
            gain = 1.0
            if chosen in speeds and OFF_CHOICE in speeds:
                gain = speeds[chosen].mean / speeds[OFF_CHOICE].mean
            self._task(traits.task).chosen(chosen, gain)
            return chosen

    # Reports to the controller.

    def learn_step(self, step: Step, seconds: float) -> None:
        """Learn from the time of a step."""
        with self._lock:
            self.costs.add(step, seconds, self._clock())

    def learn_drafts(self, traits: RequestTraits, results: Sequence[DraftResult]) -> None:
        """Learn from the results of the drafters that were asked."""
        with self._lock:
            now_s, task = self._clock(), self._task(traits.task)
            task.drafters |= drafters_of(results)
            for result in results:
                if traits.is_routed and result.drafter.name == traits.default.drafter:
                    task.num_routed += result.num_rounds
                self.acceptance.add(traits.task, traits.band, result, now_s)

    def renew(self, drafters: Iterable[str]) -> None:
        """Forget the acceptance of drafters that are now served in another version."""
        with self._lock:
            for drafter in drafters:
                self.acceptance.forget(drafter)

    def learn_prompt(self, num_prompt: int, seconds: float, *, has_head: bool) -> None:
        """See CostEstimates.add_prompt."""
        with self._lock:
            self.costs.add_prompt(num_prompt, seconds, self._clock(), has_head=has_head)

    def learn_first_draft(self, drafter: str, num_prompt: int, seconds: float) -> None:
        """See CostEstimates.add_first_draft."""
        with self._lock:
            self.costs.add_first_draft(drafter, num_prompt, seconds, self._clock())

    def learn_request(
        self, task_label: str, seconds: float, num_tokens: int, *, is_control: bool | None
    ) -> None:
        """Learn from a request that ran to its end; both figures are without its first round.

        `is_control`: None if it belongs to neither of the groups that are compared.
        """
        with self._lock:
            self._task(task_label).answered(seconds, num_tokens, is_control=is_control)

    def take_report(self, task_label: str) -> TaskReport | None:
        """Return the report on a task; None if it has no requests. See `TaskState.take_report`."""
        with self._lock:
            task = self._tasks.get(task_label)
            return None if task is None else task.take_report(self.acceptance)

    def state(self) -> dict[str, Any]:
        """Return what was learned as JSON values."""
        with self._lock:
            return {"acceptance": self.acceptance.state(), "costs": self.costs.state()}

    def take(self, acceptance: AcceptanceEstimates, costs: CostEstimates | None) -> None:
        """Take estimates from a file: acceptance where it has more rounds, and all costs."""
        with self._lock:
            self.acceptance.take(acceptance, self._clock())
            if costs is not None:
                self.costs.take(costs)

    # The decision; callers hold the lock.

    def _by_rule(self, mode: str, traits: RequestTraits, progress: RequestProgress) -> Choice:
        if mode == FIXED_MODE:
            return traits.default
        if mode == ARTICLE_MODE:
            chosen = self._by_article(traits)
            self._article_choices[traits.task, traits.band] = chosen
            return chosen
        if mode == OFF_MODE:
            return OFF_CHOICE
        hour = time.localtime(self._clock()).tm_hour
        num_tokens = scheduled(self._rules, progress.num_inflight, hour)
        return traits.with_length(num_tokens) if num_tokens else OFF_CHOICE

    def _by_article(self, traits: RequestTraits) -> Choice:
        default, num_started = traits.default, self._task(traits.task).num_started
        if num_started and num_started % TRIAL_EVERY == 0:
            return default  # Without such rounds, the task would never be switched on again.
        drafter = EstimatedDrafter(default.drafter)
        rate = self.acceptance.rate(traits.task, drafter, max(1, default.num_tokens))
        if rate is None or rate > DEPLOY_ABOVE:
            return default
        if rate < SKIP_BELOW:
            return OFF_CHOICE
        return self._article_choices.get((traits.task, traits.band), default)

    def _best(
        self, traits: RequestTraits, progress: RequestProgress, speeds: Mapping[Choice, Speed]
    ) -> Choice:
        if self._must_be_off(traits, progress):
            return OFF_CHOICE
        if not speeds:
            return traits.default
        if traits.is_routed and traits.default in speeds:
            # `num_known` decays, and `num_routed` is lost at a restart, so the larger one counts.
            drafter, now_s = EstimatedDrafter(traits.default.drafter), self._clock()
            num_known = self.acceptance.num_rounds(traits.task, drafter, traits.band, now_s)
            if max(self._task(traits.task).num_routed, num_known) < ROUTED_ROUNDS:
                return traits.default
        known = [each for each in speeds if self._is_known(each, traits, progress)]
        return max(known, key=lambda choice: speeds[choice].mean, default=traits.default)

    def _trial(self, traits: RequestTraits, progress: RequestProgress) -> Choice | None:
        speeds = self._speeds(traits, progress)
        if not speeds:
            return None
        best = self._best(traits, progress, speeds)
        others = [each for each in speeds if each.drafter != best.drafter]
        hoped = max(others, key=lambda choice: speeds[choice].upper, default=best)
        if speeds[hoped].upper <= speeds[best].mean:
            return None
        own = [each for each in others if each.drafter == hoped.drafter]
        return max(own, key=lambda choice: speeds[choice].mean, default=None)

    def _must_be_off(self, traits: RequestTraits, progress: RequestProgress) -> bool:
        """Return whether the speed without speculation is to be measured first at this load."""
        is_shared = progress.num_inflight > 1 and traits.may_be_off
        return is_shared and not self._is_known(OFF_CHOICE, traits, progress)

    def _is_known(self, choice: Choice, traits: RequestTraits, progress: RequestProgress) -> bool:
        """Return whether the choice was timed at this load, or is the request's default."""
        num = self.costs.num_timed(choice.drafter, progress.num_inflight, self._clock())
        is_usual = choice == traits.default and progress.num_inflight == 1
        return num >= KNOWN_ROUNDS or is_usual or not traits.may_be_off

    def _speeds(self, traits: RequestTraits, progress: RequestProgress) -> dict[Choice, Speed]:
        """Return the predicted speed of each choice; none until the first steps have been timed."""
        if not self.costs.is_known:
            return {}
        usual = self._task(traits.task).answers.value or progress.num_left
        num_expected = max(1.0, min(usual, progress.num_left))
        now_s = self._clock()
        return Predictor(
            self.acceptance, self.costs, traits, progress, now_s, num_expected
        ).speeds()

    def _task(self, label: str) -> TaskState:
        return self._tasks.setdefault(label, TaskState(label))
