"""What `specdec bench overlap` reports."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from loadtest.bench.overlapping import MODES, Costs, Mode, Trace, replay
from loadtest.bench.ratios import Ratio
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


@dataclass(frozen=True, slots=True)
class Recorded:
    """The run without overlap, and its replay from other prompts' step times."""

    num_draft_tokens: int
    token_over_pass: float
    """c: the time of a drafted token over that of a target pass."""
    share_right: float
    """Places at which the draft says the target's token."""
    num_whole_drafts: int
    """Rounds whose whole draft was accepted."""
    num_right_after: int
    """Those among them in which the draft would have said the target's next token too."""
    num_rounds: float
    num_rounds_replayed: int
    seconds: float
    seconds_replayed: float


@dataclass(frozen=True, slots=True)
class Speed:
    """One way of drafting, replayed or run, in tokens per second after the first response."""

    way: str
    tokens_per_s: float
    over_serial: Ratio | float
    """A ratio with an interval where it was run."""


@dataclass(frozen=True, slots=True)
class Best:
    """What each mode gives at its best draft length, for one draft and one cost of its tokens."""

    draft: str
    token_over_pass: float
    tokens_per_pass: dict[Mode, float]
    num_draft_tokens: dict[Mode, int]


def recorded_figures(
    costs: Costs, others: Sequence[Answer], traces: Mapping[str, Trace], num_guesses: int
) -> Recorded:
    """Compare the replay with `others`, answers that gave no costs."""
    token_s = costs.draft_s(num_guesses + 1) / (num_guesses + 1)
    places = [right for trace in traces.values() for right in trace.right]
    replays = [replay(traces[each.prompt_id], num_guesses, costs, "serial") for each in others]
    num_right, num_asked = _right_after_whole_drafts(traces.values(), num_guesses)
    return Recorded(
        num_guesses,
        token_s / costs.target_s(num_guesses),
        sum(places) / len(places),
        num_asked,
        num_right,
        sum(each.times["num_rounds"] for each in others),
        sum(each.num_rounds for each in replays),
        sum(each.times["total_s"] for each in others),
        sum(each.total_s for each in replays),
    )


def recorded_table(costs: Costs, known: Recorded) -> str:
    """Show what a step takes, how often the draft is right, and the error of the replay."""
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
        ["c: drafted token ÷ target pass", f"{known.token_over_pass:.2f}"],
        ["places where the draft is right", f"{known.share_right:.3f}"],
        [
            "the token after an accepted draft is right",
            f"{known.num_right_after} of {known.num_whole_drafts}",
        ],
        ["rounds, recorded / replayed", f"{known.num_rounds:.0f} / {known.num_rounds_replayed}"],
        ["seconds, recorded / replayed", f"{known.seconds:.2f} / {known.seconds_replayed:.2f}"],
        ["error of the replay", f"{known.seconds_replayed / known.seconds - 1:+.1%}"],
    ]
    return markdown_table([f"without overlap, k = {known.num_draft_tokens}", ""], rows)


def _right_after_whole_drafts(traces: Iterable[Trace], num_guesses: int) -> tuple[int, int]:
    """Count rounds whose whole draft was accepted: with a right next token, and all of them."""
    num_asked = num_right = 0
    for trace in traces:
        place = 0
        while place + num_guesses < len(trace.right):
            stood = trace.num_right_from(place, num_guesses)
            place += stood + 1
            if stood == num_guesses:
                num_asked += 1
                num_right += trace.right[place - 1]
    return num_right, num_asked


def comparison_figures(
    costs: Costs, traces: Mapping[str, Trace], found: Sequence[Answer], num_guesses: int
) -> list[Speed]:
    """Return tokens per second after the first response: as replayed, and as run in turns.

    Cores share memory, and perhaps more: how much longer a target pass took in the run while the
    draft engine worked is what all steps are stretched by in one of the replays.
    """
    texts = list(traces.values())
    factor = _pass_s(found, "ahead") / _pass_s(found, "serial")
    replays = {
        f"replayed, {mode}": _replayed(costs, texts, num_guesses, mode) for mode in MODES
    } | {
        f"replayed, ahead, steps × {factor:.2f}": _replayed(
            costs.slower(factor), texts, num_guesses, "ahead"
        )
    }
    base = _replayed(costs, texts, num_guesses, "serial")
    speeds = [Speed(way, rate, rate / base) for way, rate in replays.items()]
    for arm in ("off", "serial", "ahead"):
        own = [each for each in found if each.arm == arm]
        speeds.append(Speed(f"run, {arm}", _rate(own), _ratio(found, arm, "serial")))
    return speeds


def comparison_table(speeds: Sequence[Speed]) -> str:
    """Show a row for each way of drafting."""
    rows = []
    for each in speeds:
        over = each.over_serial
        cell = str(over) if isinstance(over, Ratio) else f"{over:.2f}"
        rows.append([each.way, f"{each.tokens_per_s:.1f}", cell])
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


def _ratio(found: Sequence[Answer], arm: str, base: str) -> Ratio | float:
    """Return the ratio of rates, with a 95 % interval from resampling the prompts."""
    if arm == base:
        return 1.0
    over, under = (_by_prompt(found, each) for each in (arm, base))
    ids, order = sorted(over), random.Random(0)
    ratios = []
    for _ in range(NUM_RESAMPLES):
        drawn = order.choices(ids, k=len(ids))
        upper, lower = ([each for i in drawn for each in side[i]] for side in (over, under))
        ratios.append(_rate(upper) / _rate(lower))
    ratios.sort()
    middle = _rate(list(chain(*over.values()))) / _rate(list(chain(*under.values())))
    return Ratio(middle, ratios[int(0.025 * NUM_RESAMPLES)], ratios[int(0.975 * NUM_RESAMPLES)])


def _by_prompt(found: Sequence[Answer], arm: str) -> dict[str, list[Answer]]:
    prompts: dict[str, list[Answer]] = {}
    for each in found:
        if each.arm == arm and len(each.tokens) > each.num_first:
            prompts.setdefault(each.prompt_id, []).append(each)
    return prompts


def what_if_figures(traces: Sequence[Trace]) -> list[Best]:
    """Return tokens per target pass at the best k of each way, for engines on their own devices.

    For the recorded drafts and for drafts that are right with one chance everywhere; a pass takes
    as long whatever it checks, and nothing else takes time.
    """
    chances = {f"α = {each:g}": [Trace.of_chance(each, NUM_CHANCE_TOKENS)] for each in CHANCES}
    found = []
    for name, those in ({"recorded": list(traces)} | chances).items():
        for ratio in RATIOS:
            costs = Costs.of_ratio(ratio)
            best = {
                mode: max((_replayed(costs, those, number, mode), number) for number in GUESSES)
                for mode in MODES
            }
            rates = {mode: rate for mode, (rate, _) in best.items()}
            found.append(Best(name, ratio, rates, {mode: k for mode, (_, k) in best.items()}))
    return found


def what_if_table(found: Sequence[Best]) -> str:
    """Show a row for each draft and cost, the modes side by side."""
    rows = [
        [
            each.draft,
            f"{each.token_over_pass:g}",
            *(f"{each.tokens_per_pass[m]:.2f} (k = {each.num_draft_tokens[m]})" for m in MODES),
        ]
        for each in found
    ]
    return markdown_table(["drafts", "c", *MODES], rows)
