"""Policies of a replay: the real controller, a fixed choice, or an oracle that knows the best."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from specdec.loadtest.lab.controller.default_pair import CANDIDATES, DEFAULT, HEADS, MAX_COPY_TOKENS
from specdec.loadtest.lab.controller.trace import Answer
from specdec.loadtest.lab.controller.world import Outcome
from specdec.steering.acceptance_estimates import DraftResult
from specdec.steering.choices import COPY, Choice, EstimatedDrafter, RequestTraits
from specdec.steering.controller import Controller
from specdec.steering.copying import CopyWatch
from specdec.steering.load import Load
from specdec.steering.request_steering import RequestSteering, RoundResult
from specdec.steering.settings import ControlSettings


class Fixed:
    """Makes the same choice for every request and round."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice

    def start(self, answer: Answer, task: str, num_streams: int) -> Fixed:  # noqa: ARG002
        return self

    def choice(self, num_context: int, num_left: int) -> tuple[Choice, int]:  # noqa: ARG002
        return self._choice, num_left

    def learn(self, choice: Choice, outcome: Outcome, num_context: int) -> None:
        """Do nothing: there is nothing to learn."""

    def finish(self) -> None:
        """Do nothing: there is nothing to learn."""

    def leave(self) -> None:
        """Do nothing: there is nothing to forget."""


class Oracle:
    """Makes for each task the fixed choice that is best for it in this phase."""

    def __init__(self, best: Mapping[str, Choice]) -> None:
        self._best = {task: Fixed(choice) for task, choice in best.items()}

    def start(self, answer: Answer, task: str, num_streams: int) -> Fixed:  # noqa: ARG002
        return self._best[answer.task]


class Controlled:
    """Lets the real controller decide, and tells it of simulated rounds."""

    def __init__(self, settings: ControlSettings, seed: int, clock: Callable[[], float]) -> None:
        self.controller = Controller(settings, clock=clock, draw=random.Random(seed).random)
        self.load = Load()

    def start(self, answer: Answer, task: str, num_streams: int) -> _Steered:
        self.load.set_inflight(num_streams)
        traits = RequestTraits(task, "greedy", tuple(CANDIDATES.values()), MAX_COPY_TOKENS, DEFAULT)
        steering = RequestSteering(self.controller, traits, self.load, answer.num_prompt)
        return _Steered(steering, answer, CopyWatch())


@dataclass(slots=True)
class _Steered:
    """One simulated request, which tells the controller what SteeredDrafter would tell it."""

    steering: RequestSteering
    answer: Answer
    watch: CopyWatch
    position: int = 0
    has_looked_back: bool = False
    can_read: bool = True
    num_rounds: int = 0
    num_streamed: int = 0
    was_head_asked: bool = False

    def choice(self, num_context: int, num_left: int) -> tuple[Choice, int]:
        self.num_streamed = 0
        self.has_looked_back = self.steering.is_due and self._look_back()
        choice = self.steering.choose(num_context, num_left, can_read=self.can_read)
        if choice.drafter not in HEADS and not (self.steering.is_trial and not choice.is_off):
            self.can_read = False
        return choice, self.steering.num_plain or num_left

    def learn(self, choice: Choice, outcome: Outcome, num_context: int) -> None:
        is_head = choice.drafter in HEADS
        is_first = self.num_rounds == 0
        candidate = CANDIDATES.get(choice.drafter)
        if choice.is_off or is_first or (outcome.is_copy and not is_head):
            candidate = None
        self.steering.learn_round(
            RoundResult(
                outcome.seconds,
                outcome.num_tokens,
                num_context,
                draft_results=self._draft_results(choice, outcome),
                num_rows=1 + outcome.num_draft_tokens,
                candidate=candidate,
                num_draft_tokens=choice.num_tokens if candidate is not None else 0,
                draft_s=outcome.drafting_s,
                is_clean=self.num_streamed > 0 if choice.is_off else not self.has_looked_back,
                has_head=is_head,
            )
        )
        self.position += outcome.num_tokens
        if is_first:
            self.watch.begin(self.position)
        self.was_head_asked = is_head
        self.num_rounds += 1
        self.num_streamed += 1

    def finish(self) -> None:
        self._look_back()
        self.steering.finish()
        self.leave()

    def leave(self) -> None:
        self.steering.leave()

    def _look_back(self) -> bool:
        num_tokens = self.steering.draw_num_to_look_back() if self.steering.looks_back else 0
        if not (num_tokens and self.num_rounds):
            return False

        def find(position: int) -> list[tuple[int, int]]:
            accepted = self.answer.num_accepted[COPY][position]
            return [(self.answer.num_copied[position], min(accepted, self.position - position))]

        self.steering.learn_copies(self.watch.look_back(self.position, num_tokens, find))
        return True

    def _draft_results(self, choice: Choice, outcome: Outcome) -> tuple[DraftResult, ...]:
        if choice.is_off or not self.num_rounds:
            return ()
        was_asked = choice.drafter not in HEADS or self.was_head_asked
        if outcome.is_copy or choice.drafter not in CANDIDATES or not was_asked:
            return ()
        counts = outcome.num_draft_tokens, outcome.depth, outcome.num_accepted
        return (DraftResult(EstimatedDrafter(choice.drafter), *counts),)
