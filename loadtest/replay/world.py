"""A simulated server: streams that answer as recorded, at the recorded cost, one clock for all.

Each stream asks one request after another. A round gives what the trace says of its place in the
answer, and takes a recorded time drawn by chance. Who decides about a round is a `Policy`: the real
controller, a fixed choice, or an oracle.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from loadtest.replay.trace import OFF, PLAIN_ROUND, ROWS, Answer, CostTable
from specdec.control.choices import COPY, Choice, least_beyond

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
    beyond: int
    """A copy was taken if it was longer."""


class Rider(Protocol):
    """One request's decisions."""

    def choice(self, num_context: int, num_left: int) -> tuple[Choice, int]:
        """For the next round; of the target alone also how many tokens in one call."""

    def seen(self, choice: Choice, outcome: Outcome, num_context: int) -> None:
        """What came of it."""

    def finish(self) -> None:
        """The request has its answer."""

    def leave(self) -> None:
        """The request goes away without it."""


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
    swapped: tuple[str, ...] = ()
    """Drafters of which other versions are served from its beginning on."""


@dataclass
class Score:
    """Tokens and seconds of a phase, and of each of its rounds."""

    num_tokens: int = 0
    seconds: float = 0.0
    rounds: list[tuple[int, float]] = field(default_factory=list)
    """(tokens, seconds at which they were said); steps of the target alone are rounds."""

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds

    def pace(self, first: int, last: int | None = None) -> float:
        """Tokens per second from the first so many tokens to the first so many, or to the end.

        The same requests come to every policy in the same order, so that these are about the same
        tokens whoever decides.
        """
        last = self.num_tokens if last is None else last
        return (last - first) / max(self._said_at_s(last) - self._said_at_s(first), 1e-9)

    def num_rounds_for(self, num_tokens: int) -> int:
        """Rounds that ended before the first so many tokens were said."""
        return bisect.bisect_left(self._timeline[0], num_tokens)

    def _said_at_s(self, num_tokens: int) -> float:
        """When the first so many tokens were said."""
        if not num_tokens:
            return 0.0
        counts, times_s = self._timeline
        return times_s[min(bisect.bisect_left(counts, num_tokens), len(times_s) - 1)]

    @cached_property
    def _timeline(self) -> tuple[list[int], list[float]]:
        """How many tokens were said when; of a score that is complete."""
        rounds = sorted(self.rounds, key=lambda each: each[1])
        return [*itertools.accumulate(count for count, _ in rounds)], [at_s for _, at_s in rounds]


@dataclass(frozen=True, slots=True)
class _Doing:
    """What a stream's round is for the others."""

    added_s: float = 0.0
    """To the passes, beside a plain step's part of them."""
    asked: str | None = None
    """The draft engine."""


@dataclass(slots=True)
class _Stream:
    number: int
    answer: Answer
    rider: Rider
    place: int = 0
    num_rounds: int = 0
    choice: Choice | None = None
    num_to_stream: int = 0
    """Of the call of the target alone that runs."""


class World:
    """Runs phases under a policy; the same seed gives the same requests to every policy."""

    def __init__(self, answers: Sequence[Answer], costs: CostTable, seed: int) -> None:
        self._by_task: dict[str, list[Answer]] = defaultdict(list)
        for answer in answers:
            self._by_task[answer.task].append(answer)
        self._costs = costs
        self._seed = seed
        self.now_s = 0.0
        self._doing: dict[int, _Doing] = {}
        """By the stream's number."""
        self._means: dict[tuple[str, int, int], float] = {}

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self._by_task)

    def run(self, phase: Phase, policy: Policy) -> Score:
        """One phase; the clock goes on from the last."""
        requests = random.Random(f"{self._seed} {phase.name} requests")
        noise = random.Random(f"{self._seed} {phase.name} noise")
        score, start_s = Score(), self.now_s

        self._doing.clear()

        def begin(number: int) -> _Stream:
            answer = requests.choice(self._by_task[requests.choice(phase.tasks)])
            label = phase.label or answer.task
            return _Stream(number, answer, policy.start(answer, label, phase.num_streams))

        streams = [begin(number) for number in range(phase.num_streams)]
        # Streams do not start at the same moment.
        agenda = [(start_s + noise.random() * 0.02, place) for place in range(phase.num_streams)]
        heapq.heapify(agenda)
        while score.num_tokens < phase.num_tokens:
            self.now_s, place = heapq.heappop(agenda)
            stream = streams[place]
            left = stream.answer.num_tokens - stream.place
            num_context = stream.answer.num_prompt + stream.place
            if stream.choice is None or not stream.num_to_stream:
                stream.choice, stretch = stream.rider.choice(num_context, left)
                stream.num_to_stream = min(stretch, left) if stream.choice.is_off else 0
            outcome = self._round(stream, stream.choice, phase, noise)
            end_s = self.now_s + outcome.seconds
            stream.num_to_stream = max(0, stream.num_to_stream - 1)
            stream.place += outcome.num_tokens
            stream.num_rounds += 1
            score.num_tokens += outcome.num_tokens
            score.rounds.append((outcome.num_tokens, end_s - start_s))
            stream.rider.seen(stream.choice, outcome, num_context)
            if stream.place >= stream.answer.num_tokens:
                stream.rider.finish()
                streams[place] = begin(place)
            heapq.heappush(agenda, (end_s, place))
        score.seconds = self.now_s - start_s
        for stream in streams:
            stream.rider.leave()
        return score

    def _round(
        self, stream: _Stream, choice: Choice, phase: Phase, noise: random.Random
    ) -> Outcome:
        answer, place = stream.answer, stream.place
        chance, luck = noise.random(), noise.random()
        if choice.is_off:
            self._doing[stream.number] = _Doing()
            return Outcome(self._pass_s(phase, chance), 1, 0, 0, 0, False, 0.0, 0)
        left = answer.num_tokens - place
        num_copied = answer.copied[place]
        is_lead_head = choice.lead in HEADS
        num_own, depth, right = self._lead(stream, choice, phase, luck)
        num_guesses, beyond = num_own, least_beyond(depth if is_lead_head else 0)
        is_copy = num_copied > beyond
        if is_copy:
            num_guesses = depth = num_copied
            right = answer.right[COPY][place]
        kind = (ROWS, num_guesses) if num_guesses else (PLAIN_ROUND, 0)
        if is_lead_head:  # Its next guesses are made in the pass, beside whatever is verified.
            kind = choice.lead, choice.num_tokens
        added_s = self._mean_s(*kind, phase) - self._mean_s(OFF, 0, phase)
        if is_lead_head and is_copy:
            added_s += self._mean_s(ROWS, num_guesses, phase) - self._mean_s(ROWS, num_own, phase)
        is_asked = choice.lead not in (COPY, *HEADS) and not is_copy and stream.num_rounds > 0
        asked = choice.lead if is_asked else None
        self._doing[stream.number] = _Doing(added_s / phase.num_streams, asked)
        drafting_s = self._engine_s(choice, chance) if is_asked else 0.0
        num_accepted = min(right, num_guesses, left - 1)
        return Outcome(
            self._pass_s(phase, chance) + drafting_s,
            num_accepted + 1,
            num_guesses,
            depth,
            num_accepted,
            is_copy,
            drafting_s,
            beyond,
        )

    def _mean_s(self, kind: str, num_tokens: int, phase: Phase) -> float:
        key = kind, num_tokens, phase.num_streams
        if key not in self._means:
            self._means[key] = self._costs.mean_seconds(*key)
        return self._means[key]

    def _pass_s(self, phase: Phase, chance: float) -> float:
        """A pass is everyone's: each stream adds its part of what all would add together."""
        off_s = self._mean_s(OFF, 0, phase)
        added_s = sum(each.added_s for each in self._doing.values())
        spread = self._costs.seconds(OFF, 0, phase.num_streams, chance) / off_s
        return max(0.5 * off_s, off_s + added_s) * spread

    def _engine_s(self, choice: Choice, chance: float) -> float:
        """A draft engine is asked by those who draft with it."""
        num_asking = sum(each.asked == choice.lead for each in self._doing.values())
        length, costs = choice.num_tokens, self._costs
        whole_s = costs.seconds(choice.lead, length, num_asking, chance)
        return max(0.0, whole_s - costs.seconds(ROWS, length, num_asking, chance))

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
