"""A simulated server: streams that answer as recorded, at the recorded cost, one clock for all.

Each stream asks one request after another. A round gives what the trace says of its place in the
answer, and takes a recorded time drawn by chance. Who decides about a round is a `Policy`: the real
controller, a fixed choice, or an oracle.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loadtest.replay.trace import OFF, PLAIN_ROUND, ROWS, Answer, CostTable
from specdec.control.choices import COPY, Choice

HEADS = ("eagle3", "eagle3_tree")
TREES = {"eagle3_tree": 5}
"""Depth by drafter."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated round came to."""

    seconds: float
    num_tokens: int
    num_drafted: int
    depth: int
    num_accepted: int
    is_copy: bool
    drafting_s: float
    """Of `seconds`, what a draft engine took."""


class Rider(Protocol):
    """One request's decisions."""

    def choice(self, num_context: int, num_left: int) -> tuple[Choice, int]:
        """For the next round; of the target alone also how many tokens in one call."""

    def seen(self, choice: Choice, outcome: Outcome, num_context: int) -> None:
        """What came of it."""

    def finish(self) -> None:
        """The request has its answer."""


class Policy(Protocol):
    """Decides for all requests."""

    def start(self, answer: Answer, task: str, num_streams: int) -> Rider:
        """A request begins, beside `num_streams` - 1 others."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Traffic that stays as it is for so many answered tokens."""

    name: str
    num_tokens: int
    num_streams: int
    tasks: tuple[str, ...]
    """Equally likely; of the answers in the trace."""
    label: str | None = None
    """The task that requests name; None for their own."""
    stale: Mapping[str, float] = field(default_factory=dict)
    """By drafter: the share of its right guesses that are wrong in this phase."""


@dataclass(slots=True)
class Score:
    """Tokens and seconds of a phase, and of each of its stretches."""

    num_tokens: int = 0
    seconds: float = 0.0
    stretches: list[tuple[int, float]] = field(default_factory=list)
    """(tokens, seconds at which they were said), in order."""

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds

    def from_share(self, share: float) -> float:
        """Tokens per second behind the first `share` of the phase's time."""
        start_s = share * self.seconds
        num_tokens = sum(count for count, at_s in self.stretches if at_s > start_s)
        return num_tokens / (self.seconds - start_s)


@dataclass(slots=True)
class _Stream:
    answer: Answer
    rider: Rider
    place: int = 0
    num_rounds: int = 0
    has_been_read: bool = False
    """The head has read along so far."""


class World:
    """Runs phases under a policy; the same seed gives the same requests to every policy."""

    def __init__(self, answers: Sequence[Answer], costs: CostTable, seed: int) -> None:
        self._by_task: dict[str, list[Answer]] = defaultdict(list)
        for answer in answers:
            self._by_task[answer.task].append(answer)
        self._costs = costs
        self._seed = seed
        self.now_s = 0.0

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self._by_task)

    def run(self, phase: Phase, policy: Policy) -> Score:
        """One phase; the clock goes on from the last."""
        requests = random.Random(f"{self._seed} {phase.name} requests")
        noise = random.Random(f"{self._seed} {phase.name} noise")
        score, start_s = Score(), self.now_s

        def begin() -> _Stream:
            answer = requests.choice(self._by_task[requests.choice(phase.tasks)])
            label = phase.label or answer.task
            return _Stream(answer, policy.start(answer, label, phase.num_streams))

        streams = [begin() for _ in range(phase.num_streams)]
        # Streams do not start at the same moment.
        agenda = [(start_s + noise.random() * 0.02, place) for place in range(phase.num_streams)]
        heapq.heapify(agenda)
        while score.num_tokens < phase.num_tokens:
            self.now_s, place = heapq.heappop(agenda)
            stream = streams[place]
            left = stream.answer.num_tokens - stream.place
            num_context = stream.answer.num_prompt + stream.place
            choice, stretch = stream.rider.choice(num_context, left)
            end_s = self.now_s
            for _ in range(min(stretch, left) if choice.is_off else 1):
                outcome = self._round(stream, choice, phase, noise)
                end_s += outcome.seconds
                stream.place += outcome.num_tokens
                stream.num_rounds += 1
                score.num_tokens += outcome.num_tokens
                score.stretches.append((outcome.num_tokens, end_s - start_s))
                stream.rider.seen(choice, outcome, num_context)
                num_context += outcome.num_tokens
            if stream.place >= stream.answer.num_tokens:
                stream.rider.finish()
                streams[place] = begin()
            heapq.heappush(agenda, (end_s, place))
        score.seconds = self.now_s - start_s
        return score

    def _round(
        self, stream: _Stream, choice: Choice, phase: Phase, noise: random.Random
    ) -> Outcome:
        answer, place, load = stream.answer, stream.place, phase.num_streams
        chance, luck = noise.random(), noise.random()

        def cost(kind: str, num_tokens: int) -> float:
            return self._costs.seconds(kind, num_tokens, load, chance)

        if choice.is_off:
            return Outcome(cost(OFF, 0), 1, 0, 0, 0, False, 0.0)
        left = answer.num_tokens - place
        num_copied = answer.copied[place]
        is_lead_head = choice.lead in HEADS
        num_guesses, depth, right = self._lead(stream, choice, phase, luck)
        is_copy, depth_of_lead = num_copied > (depth if is_lead_head else 0), depth
        if is_copy:
            num_guesses = depth = num_copied
            right = answer.right[COPY][place]
        if is_lead_head:
            seconds = cost(choice.lead, choice.num_tokens)
            if is_copy:  # It pays for its own rows, and for the head's next guesses too.
                seconds += cost(ROWS, num_guesses) - cost(ROWS, depth_of_lead)
        elif is_copy:
            seconds = cost(ROWS, num_guesses)
        else:
            seconds = cost(PLAIN_ROUND, 0)
        drafting_s = 0.0
        if choice.lead not in (COPY, *HEADS) and not is_copy and stream.num_rounds:
            whole_s = cost(choice.lead, choice.num_tokens)
            drafting_s = max(0.0, whole_s - cost(ROWS, num_guesses))
            seconds = whole_s
        num_accepted = min(right, num_guesses, left - 1)
        return Outcome(
            seconds, num_accepted + 1, num_guesses, depth, num_accepted, is_copy, drafting_s
        )

    def _lead(
        self, stream: _Stream, choice: Choice, phase: Phase, luck: float
    ) -> tuple[int, int, int]:
        """Guesses of the lead, how deep they go, how many are right."""
        if choice.lead == COPY or not stream.num_rounds:
            return 0, 0, 0
        recorded = stream.answer.right[choice.lead]
        right = recorded[stream.place]
        if luck < phase.stale.get(choice.lead, 0.0):
            right = 0
        depth = min(TREES.get(choice.lead, choice.num_tokens), choice.num_tokens)
        return choice.num_tokens, depth, min(right, depth)


Start = Callable[[Answer, str, int], Rider]
