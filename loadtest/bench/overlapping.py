"""Rounds of draft and verification replayed from recorded step times, one after another or at once.

A draft engine is a function of its context, so all that it guessed and would have guessed about one
text is a bit for each place: does it say the text's next token there? With those bits and what a
step takes, any number of guesses can be replayed, one engine behind the other or side by side.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from specdec.control.waiting import is_worth_waiting

Mode = Literal["serial", "post", "pre", "ahead"]
"""One engine behind the other; calls ahead, and a fresh draft behind every miss; a plain pass
beside the draft behind every miss; either of these, as AheadDrafter chooses."""
MODES: tuple[Mode, ...] = ("serial", "post", "pre", "ahead")

Points = tuple[tuple[float, float], ...]
"""(number of draft tokens, seconds), rising."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that a step takes; between the points on a line, outside them as at the nearest."""

    drafting: Points
    verifying: Points
    rest_s: float
    """Of a round, in neither engine."""

    @classmethod
    def of_ratio(cls, ratio: float) -> Costs:
        """A target pass of one second whatever it checks, and `ratio` for each drafted token."""
        return cls(((0, 0.0), (100, 100 * ratio)), ((0, 1.0),), 0.0)

    def slower(self, factor: float) -> Costs:
        """Where two engines at work hold each other up: all steps take `factor` of their time."""
        drafting, verifying = (
            tuple((number, factor * seconds) for number, seconds in points)
            for points in (self.drafting, self.verifying)
        )
        return Costs(drafting, verifying, self.rest_s)

    def draft_s(self, num_tokens: int) -> float:
        return _between(self.drafting, num_tokens)

    def target_s(self, num_drafts: int) -> float:
        return _between(self.verifying, num_drafts)


@dataclass(frozen=True, slots=True)
class Trace:
    """One answer: where the draft engine says its next token."""

    right: tuple[bool, ...]
    max_tokens: int
    """The request's; an answer with fewer tokens has met the end token."""

    @classmethod
    def of_sources(cls, sources: Sequence[int], num_drafted: int, max_tokens: int) -> Trace:
        """From an answer for which `num_drafted` tokens were drafted in each round.

        A token of the target's own (source 0) stands where a guess fell. Where it stands behind a
        whole draft nobody has guessed it: taken as right, which is likeliest behind so many.
        """
        right, run = [], 0
        for source in sources:
            right.append(bool(source) or run == num_drafted)
            run = run + 1 if source else 0
        return cls(tuple(right), max_tokens)

    @classmethod
    def of_chance(cls, alpha: float, num_tokens: int, seed: int = 0) -> Trace:
        """Each place right with probability `alpha`, by itself."""
        draws = random.Random(seed)
        return cls(tuple(draws.random() < alpha for _ in range(num_tokens)), num_tokens)

    def num_right_from(self, place: int, most: int) -> int:
        """How many of `most` guesses behind the first `place` tokens stand."""
        places = self.right[place : place + most]
        return places.index(False) if False in places else len(places)


@dataclass(frozen=True, slots=True)
class Replay:
    """The rounds behind the first, which pays for the prompt."""

    num_rounds: int
    num_tokens: int
    total_s: float


def replay(trace: Trace, num_guesses: int, costs: Costs, mode: Mode) -> Replay:
    """What the loop comes to with `num_guesses` drafted tokens in a round."""
    engine = _DraftEngine(trace, num_guesses, costs, mode)
    num_tokens = len(trace.right)
    length = num_tokens + (num_tokens < trace.max_tokens)  # The end token is said as well.
    place, now_s = 0, 0.0
    ends: list[tuple[int, float]] = []
    while place < length:
        num_drafts, now_s = engine.propose(place, now_s)
        place += trace.num_right_from(place, num_drafts) + 1
        now_s += costs.target_s(num_drafts) + costs.rest_s
        ends.append((place, now_s))
    first_place, first_s = ends[0]
    return Replay(len(ends) - 1, num_tokens - min(first_place, num_tokens), now_s - first_s)


class _DraftEngine:
    """When its drafts are there, as AheadDrafter asks for them."""

    def __init__(self, trace: Trace, num_guesses: int, costs: Costs, mode: Mode) -> None:
        self._trace, self._num_guesses, self._costs = trace, num_guesses, costs
        self._is_serial = mode == "serial"
        self._drafts_first = mode != "pre"
        if mode == "ahead":
            # As if it had seen the whole text: half of two guesses more are right.
            alpha = (sum(trace.right) + 1) / (len(trace.right) + 2)
            draft_passes = costs.draft_s(num_guesses) / costs.target_s(num_guesses)
            self._drafts_first = is_worth_waiting(alpha, num_guesses, draft_passes)
        self._step_s = costs.draft_s(2) - costs.draft_s(1)
        self._begun: tuple[int, int, float] | None = None
        """The call ahead: its place, its tokens, and when they are there."""
        self._free_s = 0.0

    def propose(self, place: int, now_s: float) -> tuple[int, float]:
        """How many tokens are drafted behind `place`, and when the target can have them."""
        max_drafts = self._trace.max_tokens - place - 1
        num_drafts, now_s = self._ready(place, now_s)
        if not num_drafts and self._drafts_first:
            num_drafts = min(self._num_guesses, max_drafts)
            now_s += self._costs.draft_s(num_drafts) if num_drafts else 0.0
        num_ahead = min(self._num_guesses + 1, max_drafts - num_drafts)
        if num_ahead > 1 and not self._is_serial:
            ready_s = max(now_s, self._free_s) + self._costs.draft_s(num_ahead)
            self._begun = place + num_drafts, num_ahead, ready_s
        return num_drafts, now_s

    def _ready(self, place: int, now_s: float) -> tuple[int, float]:
        if self._begun is None:
            return 0, now_s
        (begun, num_tokens, ready_s), self._begun = self._begun, None
        if place <= begun:  # The text went another way; a call ends between two tokens.
            self._free_s = min(ready_s, now_s + self._step_s)
            return 0, now_s
        is_right = begun < len(self._trace.right) and self._trace.right[begun]
        return (num_tokens - 1 if is_right else 0), max(now_s, ready_s)


@lru_cache(1024)
def _between(points: Points, number: float) -> float:
    numbers, seconds = zip(*points, strict=True)
    return float(np.interp(number, numbers, seconds))
