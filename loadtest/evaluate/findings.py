"""Acceptance and gain of one domain and drafter, both with intervals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from specdec.estimates.acceptance import AcceptanceCounts, acceptance_by_position
from specdec.estimates.formulas import DraftLength, draft_lengths
from specdec.loadtest.evaluate.costs import RoundCosts
from specdec.loadtest.kit.answers import (
    DraftCounts,
    Measurement,
    after_first_response,
    answers_of_arm,
    counts_of,
)
from specdec.loadtest.kit.arms import OFF, Arm
from specdec.loadtest.kit.ratios import Ratio, ratio, resampled

ALL = "all"
"""The name for all domains together."""
MIN_COMPARED = 20
"""Draft tokens compared with the target before a position's acceptance counts.

A position with fewer takes the acceptance of the position before it.
"""


@dataclass(frozen=True, slots=True)
class ArmFinding:
    """The results of one arm in one domain.

    `num_draft_tokens` is None if the server chooses k.
    """

    arm: str
    num_draft_tokens: int | None
    counts: DraftCounts
    rate: Ratio | None
    """Accepted ÷ drafted, the guide's α; None if nothing was drafted."""
    tau: Ratio | None
    gain: Ratio
    """Tokens per second after the first response ÷ the same without speculation."""
    predicted: Ratio | None
    """The same gain, predicted from α and costs; None if the server chooses k."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The results of one drafter in one domain."""

    domain: str
    drafter: str
    num_prompts: int
    alpha: Ratio | None
    """α̂ over all arms."""
    positions: tuple[AcceptanceCounts, ...]
    arms: tuple[ArmFinding, ...]
    best: DraftLength | None
    """The best k, predicted from α by position and costs; None if the server chooses k."""

    @property
    def measured_best(self) -> ArmFinding:
        """The arm with the largest measured gain."""
        return max(self.arms, key=lambda each: each.gain.middle)

    @property
    def arm_nearest_k4(self) -> ArmFinding | None:
        """The arm whose k is nearest to 4, for which the guide states its thresholds."""
        known = [each for each in self.arms if each.rate is not None]
        return min(known, key=lambda each: abs((each.num_draft_tokens or 4) - 4), default=None)


def find(
    found: list[Measurement], domain: str, drafter: str, arms: Sequence[str], costs: RoundCosts
) -> Finding:
    """Return the results of a drafter's `arms` in one domain, or in `ALL` of them.

    `found` must also hold answers of the arm `off`.
    """
    if domain != ALL:
        found = [each for each in found if each.column == domain]
    drafter_answers = [each for arm in arms for each in answers_of_arm(found, arm)]
    by_id = _grouped(drafter_answers)
    ids = sorted(by_id)
    positions = positions_of(drafter_answers)
    chooses = all(Arm.parse(arm).num_draft_tokens is None for arm in arms)
    share = counts_of(drafter_answers).drafted_share
    return Finding(
        domain=domain,
        drafter=drafter,
        num_prompts=len(ids),
        alpha=_ratio_of(by_id, ids, lambda counts: (counts.num_accepted, counts.num_compared)),
        positions=positions,
        arms=tuple(_arm(found, arm, drafter_answers, costs) for arm in arms),
        best=None if chooses else predicted_best(positions, share, costs),
    )


def positions_of(measured: Sequence[Measurement]) -> tuple[AcceptanceCounts, ...]:
    """Return the acceptance at the first draft position, the second, …, over these answers."""
    histograms = (
        (each.statistics or {})["acceptance_histogram_by_draft_length"] for each in measured
    )
    return summed(
        acceptance_by_position({int(k): counts for k, counts in known.items()})
        for known in histograms
    )


def summed(parts: Iterable[Sequence[AcceptanceCounts]]) -> tuple[AcceptanceCounts, ...]:
    """Add up acceptances position by position."""
    return tuple(
        AcceptanceCounts(
            sum(each.num_accepted for each in column), sum(each.num_compared for each in column)
        )
        for column in itertools.zip_longest(*parts, fillvalue=AcceptanceCounts())
    )


def alphas_of(positions: Sequence[AcceptanceCounts], length: int) -> list[float]:
    """Return the conditional acceptance of the first `length` positions.

    A position with fewer than MIN_COMPARED compared draft tokens takes that of the position before
    it.
    """
    alphas: list[float] = []
    for position in range(length):
        known = positions[position] if position < len(positions) else AcceptanceCounts()
        if known.num_compared >= MIN_COMPARED or not alphas:
            alphas.append(known.alpha or 0.0)
        else:
            alphas.append(alphas[-1])
    return alphas


def predicted(
    positions: Sequence[AcceptanceCounts], share: float, length: int, costs: RoundCosts
) -> tuple[DraftLength, ...]:
    """Predict tokens and speed-up for k = 0 to `length`, if `share` of the rounds can draft.

    The first position's α is multiplied by `share`, which gives 1 + share · (E − 1) tokens over all
    rounds.
    """
    alphas = alphas_of(positions, length)
    alphas[0] *= share
    return draft_lengths(alphas, lambda k: costs.round_s(share * k))


def predicted_best(
    positions: Sequence[AcceptanceCounts], share: float, costs: RoundCosts
) -> DraftLength:
    """Return the k with the largest predicted gain among the measured positions; 0 means off."""
    measured = sum(each.num_compared >= MIN_COMPARED for each in positions)
    choices = predicted(positions, share, max(1, measured), costs)
    return max(choices, key=lambda choice: choice.speed_up)


def _arm(
    found: list[Measurement], arm: str, drafter_answers: Sequence[Measurement], costs: RoundCosts
) -> ArmFinding:
    """Return the results of one arm.

    `found` are the domain's answers, and `drafter_answers` the drafter's at any k.
    """
    on, off = answers_of_arm(found, arm), answers_of_arm(found, OFF)
    by_id, all_by_id = _grouped(on), _grouped(drafter_answers)
    ids, k = sorted(by_id), Arm.parse(arm).num_draft_tokens
    counts = counts_of(on)

    positions_by_id = {i: positions_of(all_by_id[i]) for i in ids}
    parts = {i: counts_of(by_id[i]) for i in ids}

    def predict(drawn: Sequence[str]) -> float:
        positions = summed(positions_by_id[i] for i in drawn)
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
            {each.prompt_id: after_first_response(each) for each in on},
            {each.prompt_id: after_first_response(each) for each in off},
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
    """Return a ratio of sums over prompts; None if the sum of the divisors is 0."""
    known = {i: parts(counts_of(by_id[i])) for i in ids}

    def value(drawn: Sequence[str]) -> float:
        over, under = (sum(known[i][position] for i in drawn) for position in (0, 1))
        return over / under if under else 0.0

    if not sum(under for _, under in known.values()):
        return None
    return resampled(ids, value)
