"""What the answers say about one domain and drafter: acceptance, gain, both with intervals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from loadtest.bench.arms import OFF, Arm
from loadtest.bench.counting import DraftCounts
from loadtest.bench.ratios import Ratio, ratio, resampled
from loadtest.bench.speed_tables import Measurement, later, of
from loadtest.evaluating.costs import RoundCosts, counts_of
from specdec.control.expectation import (
    DraftLength,
    article_speed_up,
    draft_lengths,
)
from specdec.control.judged import Acceptance, acceptance_by_position

ALL = "all"
"""Every domain together."""
MIN_JUDGED = 20
"""Guesses judged at a position before its acceptance counts; further ones are as the last."""


@dataclass(frozen=True, slots=True)
class ArmFinding:
    """One number of guesses; `num_draft_tokens` None: as the server chooses."""

    arm: str
    num_draft_tokens: int | None
    counts: DraftCounts
    rate: Ratio | None
    """Accepted ÷ drafted, the article's α; None: nothing was drafted."""
    tau: Ratio | None
    gain: Ratio
    """Tokens per second behind the first response, over those without speculation."""
    predicted: Ratio | None
    """The same by α and costs; None where the server chooses."""

    @property
    def by_article(self) -> float | None:
        """The article's formula, from its own α at this number of guesses."""
        if self.rate is None or self.num_draft_tokens is None:
            return None
        return article_speed_up(self.rate.middle, self.num_draft_tokens)


@dataclass(frozen=True, slots=True)
class Finding:
    """One domain with one drafter."""

    domain: str
    drafter: str
    num_prompts: int
    alpha: Ratio | None
    """α̂ over all numbers of guesses."""
    positions: tuple[Acceptance, ...]
    arms: tuple[ArmFinding, ...]
    best: DraftLength | None
    """By α by position and costs; None where the server chooses."""

    @property
    def measured_best(self) -> ArmFinding:
        """The way with the largest measured gain."""
        return max(self.arms, key=lambda each: each.gain.middle)

    @property
    def rules_arm(self) -> ArmFinding | None:
        """The way nearest to the article's usual 4 guesses: its rules are about those."""
        known = [each for each in self.arms if each.rate is not None]
        return min(known, key=lambda each: abs((each.num_draft_tokens or 4) - 4), default=None)


def find(
    found: list[Measurement], domain: str, drafter: str, arms: Sequence[str], costs: RoundCosts
) -> Finding:
    """Of the answers to one domain's prompts, or to those of `ALL`."""
    if domain != ALL:
        found = [each for each in found if each.column == domain]
    own = [each for arm in arms for each in of(found, arm)]
    by_id = _grouped(own)
    ids = sorted(by_id)
    positions = positions_of(own)
    chooses = all(Arm.parse(arm).num_draft_tokens is None for arm in arms)
    share = counts_of(own).drafted_share
    return Finding(
        domain=domain,
        drafter=drafter,
        num_prompts=len(ids),
        alpha=_ratio_of(by_id, ids, lambda counts: (counts.num_accepted, counts.num_reached)),
        positions=positions,
        arms=tuple(_arm(found, arm, own, costs) for arm in arms),
        best=None if chooses else predicted_best(positions, share, costs),
    )


def positions_of(measured: Sequence[Measurement]) -> tuple[Acceptance, ...]:
    """Of the first guess, the second, …, over these answers."""
    histograms = (
        (each.statistics or {})["acceptance_histogram_by_draft_length"] for each in measured
    )
    return summed(
        acceptance_by_position({int(k): counts for k, counts in known.items()})
        for known in histograms
    )


def summed(parts: Iterable[Sequence[Acceptance]]) -> tuple[Acceptance, ...]:
    """Position by position."""
    return tuple(
        Acceptance(
            sum(each.num_accepted for each in column), sum(each.num_judged for each in column)
        )
        for column in itertools.zip_longest(*parts, fillvalue=Acceptance())
    )


def alphas_of(positions: Sequence[Acceptance], length: int) -> list[float]:
    """Conditional acceptance of so many positions; where too little is known, as the last known."""
    alphas: list[float] = []
    for place in range(length):
        known = positions[place] if place < len(positions) else Acceptance()
        if known.num_judged >= MIN_JUDGED or not alphas:
            alphas.append(known.alpha or 0.0)
        else:
            alphas.append(alphas[-1])
    return alphas


def predicted(
    positions: Sequence[Acceptance], share: float, length: int, costs: RoundCosts
) -> tuple[DraftLength, ...]:
    """All choices up to `length` guesses, if `share` of the rounds can draft.

    The first guess of a round is then as rare as it is uncertain, which gives
    1 + share · (E − 1) tokens over all rounds.
    """
    alphas = alphas_of(positions, length)
    alphas[0] *= share
    return draft_lengths(alphas, lambda k: costs.round_s(share * k))


def predicted_best(positions: Sequence[Acceptance], share: float, costs: RoundCosts) -> DraftLength:
    """The choice with the largest predicted gain among positions that were measured; 0: off."""
    measured = sum(each.num_judged >= MIN_JUDGED for each in positions)
    choices = predicted(positions, share, max(1, measured), costs)
    return max(choices, key=lambda choice: choice.speed_up)


def _arm(
    found: list[Measurement], arm: str, every: Sequence[Measurement], costs: RoundCosts
) -> ArmFinding:
    """`found` are the domain's answers, `every` those of the drafter at any number of guesses."""
    on, off = of(found, arm), of(found, OFF)
    by_id, all_by_id = _grouped(on), _grouped(every)
    ids, k = sorted(by_id), Arm.parse(arm).num_draft_tokens
    counts = counts_of(on)

    places = {i: positions_of(all_by_id[i]) for i in ids}
    parts = {i: counts_of(by_id[i]) for i in ids}

    def predict(drawn: Sequence[str]) -> float:
        positions = summed(places[i] for i in drawn)
        num_rounds = sum(parts[i].num_rounds for i in drawn)
        share = sum(parts[i].num_steps for i in drawn) / num_rounds
        return predicted(positions, share, k or 1, costs)[-1].speed_up

    return ArmFinding(
        arm=arm,
        num_draft_tokens=k,
        counts=counts,
        rate=_ratio_of(by_id, ids, lambda each: (each.num_accepted, each.num_drafted)),
        tau=_ratio_of(
            by_id, ids, lambda each: (each.num_steps + each.num_accepted, each.num_steps)
        ),
        gain=ratio(
            {each.prompt_id: later(each) for each in on},
            {each.prompt_id: later(each) for each in off},
        ),
        predicted=None if k is None else resampled(ids, predict),
    )


def _grouped(measured: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    by_id: dict[str, list[Measurement]] = {}
    for each in measured:
        by_id.setdefault(each.prompt_id, []).append(each)
    return by_id


def _ratio_of(
    by_id: Mapping[str, list[Measurement]],
    ids: Sequence[str],
    parts: Callable[[DraftCounts], tuple[int, int]],
) -> Ratio | None:
    """A ratio of sums over prompts; None if the divisor is 0 over all of them."""
    known = {i: parts(counts_of(by_id[i])) for i in ids}

    def value(drawn: Sequence[str]) -> float:
        over, under = (sum(known[i][place] for i in drawn) for place in (0, 1))
        return over / under if under else 0.0

    if not sum(under for _, under in known.values()):
        return None
    return resampled(ids, value)
