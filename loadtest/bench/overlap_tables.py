"""What `specdec bench overlap` reports."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol

from loadtest.bench.overlapping import MODES, Costs, Mode, Trace, replay
from loadtest.bench.reporting import markdown_table

NUM_RESAMPLES = 2000
RATIOS = (0.05, 0.1, 0.2, 0.33, 0.5, 1.0)
"""Of the time of a drafted token to that of a target pass."""
GUESSES = (1, 2, 3, 4, 6, 8)
CHANCES = (0.3, 0.5, 0.7, 0.9)
NUM_CHANCE_TOKENS = 4000


class Answer(Protocol):
    """What is known of an answer; see overlap.Answer."""

    @property
    def prompt_id(self) -> str: ...
    @property
    def arm(self) -> str: ...
    @property
    def tokens(self) -> tuple[int, ...]: ...
    @property
    def num_first(self) -> int: ...
    @property
    def first_s(self) -> float: ...
    @property
    def last_s(self) -> float: ...
    @property
    def times(self) -> Mapping[str, float]: ...


def recorded_table(
    costs: Costs, others: Sequence[Answer], traces: Mapping[str, Trace], num_guesses: int
) -> str:
    """What a step takes, how often the draft is right, and how far off the replay of it all is.

    `others` gave no costs: what they took is held against their replay.
    """
    token_s = costs.draft_s(num_guesses + 1) / (num_guesses + 1)
    places = [right for trace in traces.values() for right in trace.right]
    replays = [replay(traces[each.prompt_id], num_guesses, costs, "serial") for each in others]
    taken_s = sum(each.times["total_s"] for each in others)
    said_s = sum(each.total_s for each in replays)
    rounds = sum(each.times["num_rounds"] for each in others)
    rows = [
        [f"draft of {number:.1f} tokens, ms", f"{seconds * 1000:.2f}"]
        for number, seconds in costs.drafting
    ]
    rows += [
        [f"target pass over {number:.1f} drafts, ms", f"{seconds * 1000:.2f}"]
        for number, seconds in costs.verifying
    ]
    rows += [
        ["rest of a round, ms", f"{costs.rest_s * 1000:.2f}"],
        ["c: drafted token ÷ target pass", f"{token_s / costs.target_s(num_guesses):.2f}"],
        ["places where the draft is right", f"{sum(places) / len(places):.3f}"],
        [
            "the guess behind a draft that stood is right",
            _share_right(traces.values(), num_guesses),
        ],
        ["rounds, recorded / replayed", f"{rounds:.0f} / {sum(e.num_rounds for e in replays)}"],
        ["seconds, recorded / replayed", f"{taken_s:.2f} / {said_s:.2f}"],
        ["error of the replay", f"{said_s / taken_s - 1:+.1%}"],
    ]
    return markdown_table([f"without overlap, k = {num_guesses}", ""], rows)


def _share_right(traces: Iterable[Trace], num_guesses: int) -> str:
    """Of the rounds whose whole draft stood, those whose own token the draft would have said."""
    num_asked = num_right = 0
    for trace in traces:
        place = 0
        while place + num_guesses < len(trace.right):
            stood = trace.num_right_from(place, num_guesses)
            place += stood + 1
            if stood == num_guesses:
                num_asked += 1
                num_right += trace.right[place - 1]
    return f"{num_right} of {num_asked}"


def comparison_table(
    costs: Costs, traces: Mapping[str, Trace], found: Sequence[Answer], num_guesses: int
) -> str:
    """Tokens per second behind the first response: as replayed, and as run in turns.

    Cores share memory, and perhaps more: how much longer a target pass took in the run while the
    draft engine worked is what all steps are stretched by in one of the replays.
    """
    rows = []
    base = _replayed(costs, list(traces.values()), num_guesses, "serial")
    for mode in MODES:
        rate = _replayed(costs, list(traces.values()), num_guesses, mode)
        rows.append([f"replayed, {mode}", f"{rate:.1f}", f"{rate / base:.2f}"])
    factor = _pass_s(found, "ahead") / _pass_s(found, "serial")
    rate = _replayed(costs.slower(factor), list(traces.values()), num_guesses, "ahead")
    rows.append([f"replayed, ahead, steps × {factor:.2f}", f"{rate:.1f}", f"{rate / base:.2f}"])
    for arm in ("off", "serial", "ahead"):
        own = [each for each in found if each.arm == arm]
        rows.append([f"run, {arm}", f"{_rate(own):.1f}", _ratio(found, arm, "serial")])
    return markdown_table(["tokens/s", "", "÷ serial, 95 % interval"], rows)


def _replayed(costs: Costs, traces: Sequence[Trace], num_guesses: int, mode: Mode) -> float:
    replays = [replay(trace, num_guesses, costs, mode) for trace in traces]
    return sum(each.num_tokens for each in replays) / sum(each.total_s for each in replays)


def _pass_s(found: Sequence[Answer], arm: str) -> float:
    """A target pass behind the first round."""
    own = [each.times for each in found if each.arm == arm]
    return sum(each["target_s"] for each in own) / sum(each["num_rounds"] for each in own)


def _rate(answers: Sequence[Answer]) -> float:
    num_tokens = sum(len(each.tokens) - each.num_first for each in answers)
    return num_tokens / sum(each.last_s - each.first_s for each in answers)


def _ratio(found: Sequence[Answer], arm: str, base: str) -> str:
    """Ratio of rates, with a 95 % interval from resampling the prompts."""
    if arm == base:
        return "1"
    over, under = (_by_prompt(found, each) for each in (arm, base))
    ids, order = sorted(over), random.Random(0)
    ratios = []
    for _ in range(NUM_RESAMPLES):
        drawn = order.choices(ids, k=len(ids))
        upper, lower = ([each for i in drawn for each in side[i]] for side in (over, under))
        ratios.append(_rate(upper) / _rate(lower))
    ratios.sort()
    middle = _rate(list(chain(*over.values()))) / _rate(list(chain(*under.values())))
    low, high = ratios[int(0.025 * NUM_RESAMPLES)], ratios[int(0.975 * NUM_RESAMPLES)]
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def _by_prompt(found: Sequence[Answer], arm: str) -> dict[str, list[Answer]]:
    prompts: dict[str, list[Answer]] = {}
    for each in found:
        if each.arm == arm and len(each.tokens) > each.num_first:
            prompts.setdefault(each.prompt_id, []).append(each)
    return prompts


def what_if_table(traces: Sequence[Trace]) -> str:
    """Tokens per target pass at the best k of each way, for other engines on devices of their own.

    For the recorded guesses and for guesses that are right with one chance everywhere; a pass takes
    as long whatever it checks, and nothing else takes time.
    """
    chances = {f"α = {each:g}": [Trace.of_chance(each, NUM_CHANCE_TOKENS)] for each in CHANCES}
    rows = []
    for name, those in ({"recorded": list(traces)} | chances).items():
        for ratio in RATIOS:
            costs = Costs.of_ratio(ratio)
            best = []
            for mode in MODES:
                rate, number = max(
                    (_replayed(costs, those, number, mode), number) for number in GUESSES
                )
                best.append(f"{rate:.2f} (k = {number})")
            rows.append([name, f"{ratio:g}", *best])
    return markdown_table(["right guesses", "c", *MODES], rows)
