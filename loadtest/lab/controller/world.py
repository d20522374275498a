"""A simulated server: streams that answer as recorded, at the recorded cost, on one clock.

Each stream sends one request after another. A round gives the tokens that the trace has for its
position in the answer, and takes a time drawn from the recorded ones. A `Policy` decides about each
round: the real controller, a fixed choice, or an oracle.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from specdec.loadtest.lab.controller.default_pair import CANDIDATES, HEADS
from specdec.loadtest.lab.controller.score import Score
from specdec.loadtest.lab.controller.trace import OFF, PLAIN_ROUND, ROWS, Answer, CostTable
from specdec.steering.choices import COPY, Choice, least_beyond

SLOWDOWN = 10.0
"""Factor by which other programs, such as a server that starts, slow rounds on a machine that is
too small for both."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a simulated round; times are in seconds."""

    seconds: float
    num_tokens: int
    num_draft_tokens: int
    depth: int
    num_accepted: int
    is_copy: bool
    drafting_s: float
    """The part of `seconds` that a draft engine took."""


class RequestPolicy(Protocol):
    """Makes the decisions for one request."""

    def choice(self, num_context: int, num_left: int) -> tuple[Choice, int]:
        """Return the choice for the next round; if it is off, also how many tokens to stream."""

    def learn(self, choice: Choice, outcome: Outcome, num_context: int) -> None:
        """Learn from a round that followed `choice` after `num_context` tokens of context."""

    def finish(self) -> None:
        """End the request after its whole answer."""

    def leave(self) -> None:
        """End the request without its whole answer."""


class Policy(Protocol):
    """Decides for all requests."""

    def start(self, answer: Answer, task: str, num_streams: int) -> RequestPolicy:
        """Begin a request while `num_streams` − 1 others are in flight."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Requests of the same kind and the same load, for `num_tokens` tokens of answers."""

    name: str
    num_tokens: int
    num_streams: int
    tasks: tuple[str, ...]
    """Tasks of the requests, equally likely; the trace must have answers of each."""
    label: str | None = None
    """The task that requests name; None for their own."""
    stale: Mapping[str, float] = field(default_factory=dict)
    """Share of each drafter's drafts whose tokens are all rejected in this phase."""
    swapped: tuple[str, ...] = ()
    """Drafters that are served in another version from the start of the phase."""
    num_slow_tokens: int = 0
    """Tokens at the start of the phase whose rounds take SLOWDOWN times as long."""


@dataclass(frozen=True, slots=True)
class _Doing:
    """The effect of a stream's round on the other streams."""

    added_s: float = 0.0
    """Seconds that it adds to each pass, beyond its part of a plain step."""
    asked: str | None = None
    """The draft engine that it calls; None if it calls none."""


@dataclass(slots=True)
class _Stream:
    number: int
    answer: Answer
    policy: RequestPolicy
    position: int = 0
    num_rounds: int = 0
    choice: Choice | None = None
    num_to_stream: int = 0
    """Tokens that the running call without speculation still has to stream."""


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
        """The round of each stream, by the stream's number."""
        self._means: dict[tuple[str, int, int], float] = {}

    def run(self, phase: Phase, policy: Policy) -> Score:
        """Run one phase and return its score; the clock continues from the last phase."""
        requests = random.Random(f"{self._seed} {phase.name} requests")
        noise = random.Random(f"{self._seed} {phase.name} noise")
        score, start_s = Score(), self.now_s

        self._doing.clear()

        def begin(number: int) -> _Stream:
            answer = requests.choice(self._by_task[requests.choice(phase.tasks)])
            label = phase.label or answer.task
            return _Stream(number, answer, policy.start(answer, label, phase.num_streams))

        streams = [begin(number) for number in range(phase.num_streams)]
        # Real streams do not start at the same moment either.
        agenda = [(start_s + noise.random() * 0.02, number) for number in range(phase.num_streams)]
        heapq.heapify(agenda)
        while score.num_tokens < phase.num_tokens:
            self.now_s, number = heapq.heappop(agenda)
            stream = streams[number]
            left = stream.answer.num_tokens - stream.position
            num_context = stream.answer.num_prompt + stream.position
            if stream.choice is None or not stream.num_to_stream:
                stream.choice, num_plain = stream.policy.choice(num_context, left)
                stream.num_to_stream = min(num_plain, left) if stream.choice.is_off else 0
            outcome = self._round(stream, stream.choice, phase, noise)
            if score.num_tokens < phase.num_slow_tokens:
                outcome = replace(
                    outcome,
                    seconds=SLOWDOWN * outcome.seconds,
                    drafting_s=SLOWDOWN * outcome.drafting_s,
                )
            end_s = self.now_s + outcome.seconds
            stream.num_to_stream = max(0, stream.num_to_stream - 1)
            stream.position += outcome.num_tokens
            stream.num_rounds += 1
            score.num_tokens += outcome.num_tokens
            score.rounds.append((outcome.num_tokens, end_s - start_s))
            stream.policy.learn(stream.choice, outcome, num_context)
            if stream.position >= stream.answer.num_tokens:
                stream.policy.finish()
                streams[number] = begin(number)
            heapq.heappush(agenda, (end_s, number))
        score.seconds = self.now_s - start_s
        for stream in streams:
            stream.policy.leave()
        return score

    def _round(
        self, stream: _Stream, choice: Choice, phase: Phase, noise: random.Random
    ) -> Outcome:
        answer, position = stream.answer, stream.position
        chance, luck = noise.random(), noise.random()
        if choice.is_off:
            self._doing[stream.number] = _Doing()
            return Outcome(self._pass_s(phase, chance), 1, 0, 0, 0, False, 0.0)
        left = answer.num_tokens - position
        num_copied = answer.num_copied[position]
        is_head = choice.drafter in HEADS
        num_own, depth, most = self._drafted(stream, choice, phase, luck)
        num_draft_tokens, beyond = num_own, least_beyond(depth if is_head else 0)
        is_copy = num_copied > beyond
        if is_copy:
            num_draft_tokens = depth = num_copied
            most = answer.num_accepted[COPY][position]
        kind = (ROWS, num_draft_tokens) if num_draft_tokens else (PLAIN_ROUND, 0)
        if is_head:  # A head makes its next draft in the pass, whatever is verified there.
            kind = choice.drafter, choice.num_tokens
        added_s = self._mean_s(*kind, phase) - self._mean_s(OFF, 0, phase)
        if is_head and is_copy:
            own_s = self._mean_s(ROWS, num_own, phase)
            added_s += self._mean_s(ROWS, num_draft_tokens, phase) - own_s
        is_asked = choice.drafter not in (COPY, *HEADS) and not is_copy and stream.num_rounds > 0
        asked = choice.drafter if is_asked else None
        self._doing[stream.number] = _Doing(added_s / phase.num_streams, asked)
        drafting_s = self._engine_s(choice, chance) if is_asked else 0.0
        num_accepted = min(most, num_draft_tokens, left - 1)
        return Outcome(
            self._pass_s(phase, chance) + drafting_s,
            num_accepted + 1,
            num_draft_tokens,
            depth,
            num_accepted,
            is_copy,
            drafting_s,
        )

    def _mean_s(self, kind: str, num_tokens: int, phase: Phase) -> float:
        key = kind, num_tokens, phase.num_streams
        if key not in self._means:
            self._means[key] = self._costs.mean_seconds(*key)
        return self._means[key]

    def _pass_s(self, phase: Phase, chance: float) -> float:
        """Return the seconds of a pass, which all streams share.

        Each stream adds its part of the time that all of them would add if they did the same.
        """
        off_s = self._mean_s(OFF, 0, phase)
        added_s = sum(each.added_s for each in self._doing.values())
        spread = self._costs.seconds(OFF, 0, phase.num_streams, chance) / off_s
        return max(0.5 * off_s, off_s + added_s) * spread

    def _engine_s(self, choice: Choice, chance: float) -> float:
        """Return the seconds of a draft engine's call; it serves all streams with this drafter."""
        num_asking = sum(each.asked == choice.drafter for each in self._doing.values())
        length, costs = choice.num_tokens, self._costs
        whole_s = costs.seconds(choice.drafter, length, num_asking, chance)
        return max(0.0, whole_s - costs.seconds(ROWS, length, num_asking, chance))

    def _drafted(
        self, stream: _Stream, choice: Choice, phase: Phase, luck: float
    ) -> tuple[int, int, int]:
        """Return the drafter's number of tokens, their depth, and how many would be accepted.

        All are 0 for copies, and in the first round, in which no drafter proposes.
        """
        if choice.drafter == COPY or not stream.num_rounds:
            return 0, 0, 0
        recorded = stream.answer.num_accepted[choice.drafter]
        num_accepted = recorded[stream.position]
        if luck < phase.stale.get(choice.drafter, 0.0):
            num_accepted = 0
        depth = CANDIDATES[choice.drafter].depth(choice.num_tokens)
        return choice.num_tokens, depth, min(num_accepted, depth)
