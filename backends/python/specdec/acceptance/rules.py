"""The verification modes that compare probabilities: `rejection`, `block` and `typical`.

All rules take the same arguments. A distribution is [vocab], after penalties, bans, temperature and
truncation (warping.py).

- `draft`: the k draft tokens of a chain.
- `draft_distributions`: k distributions; `draft[i]` was drawn from the one at i. None if the draft
  tokens were copied instead of drawn: each then counts as drawn with probability 1.
- `target_distributions`: k + 1 distributions; the one at i is the target's after `draft[:i]`.
- `chance`: makes the random decisions.

The rules work with floats and with fractions; tests use fractions to prove them exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from specdec.acceptance.chance import Chance, Distribution, Number
from specdec.acceptance.exact import Verdict
from specdec.acceptance.modes import BLOCK, REJECTION, TYPICAL

Rule = Callable[
    [Sequence[int], "Sequence[Distribution] | None", Sequence[Distribution], Chance], Verdict
]


def verify_by_rejection(
    draft: Sequence[int],
    draft_distributions: Sequence[Distribution] | None,
    target_distributions: Sequence[Distribution],
    chance: Chance,
) -> Verdict:
    """Accept or reject token by token (Leviathan et al. 2023, Chen et al. 2023).

    A draft token is accepted with probability min(1, p / q), where p and q are its probabilities
    for target and drafter. The first rejected token is replaced by a draw from the normalised
    max(0, target's probabilities - drafter's). The tokens follow the target's distribution.
    """
    for position, token in enumerate(draft):
        target_probs = target_distributions[position]
        draft_probs = distribution_at(draft_distributions, position, token, len(target_probs))
        if not chance.happens(acceptance_of(target_probs[token], draft_probs[token])):
            replacement = chance.draw(residual_of(target_probs, draft_probs))
            return Verdict((*draft[:position], replacement), position)
    return Verdict((*draft, chance.draw(target_distributions[len(draft)])), len(draft))


def verify_as_block(
    draft: Sequence[int],
    draft_distributions: Sequence[Distribution] | None,
    target_distributions: Sequence[Distribution],
    chance: Chance,
) -> Verdict:
    """Decide on the whole draft together (Sun et al. 2025).

    Each prefix of the draft is accepted or rejected, and the longest accepted one is kept. A
    rejected prefix does not end the search. The tokens follow the target's distribution. On
    average, at least as many draft tokens are accepted as by `verify_by_rejection`.
    """
    size = len(draft)
    joint: Number = 1
    num_accepted, weight = 0, joint
    for position in range(size):
        token, target_probs = draft[position], target_distributions[position]
        draft_probs = distribution_at(draft_distributions, position, token, len(target_probs))
        # As in acceptance_of: a token of draft probability 0 counts as drawn with probability 1.
        joint = joint * target_probs[token] / (draft_probs[token] or 1)
        joint = min(joint, 1)
        chance_of_prefix = joint
        if position + 1 < size:
            next_target = target_distributions[position + 1]
            next_draft = distribution_at(
                draft_distributions, position + 1, draft[position + 1], len(next_target)
            )
            surplus = sum(surplus_of(next_target, next_draft, joint))
            remainder = surplus + 1 - joint
            chance_of_prefix = surplus / remainder if remainder else 0
        if chance.happens(chance_of_prefix):
            num_accepted, weight = position + 1, joint
    if num_accepted == size:
        return Verdict((*draft, chance.draw(target_distributions[size])), size)
    target_probs = target_distributions[num_accepted]
    draft_probs = distribution_at(
        draft_distributions, num_accepted, draft[num_accepted], len(target_probs)
    )
    replacement = chance.draw(residual_of(target_probs, draft_probs, weight))
    return Verdict((*draft[:num_accepted], replacement), num_accepted)


TYPICAL_FLOOR = 0.3
"""Medusa's default of posterior_threshold (Cai et al. 2024, section 2.3.1)."""
TYPICAL_SHARE = 0.09
"""Medusa's default of posterior_alpha (the same section)."""


def verify_as_typical(
    draft: Sequence[int],
    draft_distributions: Sequence[Distribution] | None,
    target_distributions: Sequence[Distribution],
    chance: Chance,
) -> Verdict:
    """Accept tokens that the target finds likely enough. LOSSY: changes the distribution.

    A draft token is accepted if p > min(0.3, 0.09 exp(-H)). Here p is the target's probability of
    the token, and H the entropy of the target's distribution in nats. The draft's distributions are
    not used.
    """
    del draft_distributions
    for position, token in enumerate(draft):
        probs = np.asarray(target_distributions[position], dtype=np.float64)
        positive = probs[probs > 0]
        entropy = -float((positive * np.log(positive)).sum())
        if probs[token] <= min(TYPICAL_FLOOR, TYPICAL_SHARE * math.exp(-entropy)):
            return Verdict(
                (*draft[:position], chance.draw(target_distributions[position])), position
            )
    return Verdict((*draft, chance.draw(target_distributions[len(draft)])), len(draft))


RULES: dict[str, Rule] = {
    REJECTION: verify_by_rejection,
    BLOCK: verify_as_block,
    TYPICAL: verify_as_typical,
}
"""The rules by verification mode; `exact` needs no probabilities and is in exact.py."""


def distribution_at(
    distributions: Sequence[Distribution] | None, position: int, token: int, size: int
) -> Distribution:
    """Return the distribution [size] from which the draft token at this position was drawn.

    If `distributions` is None, the token was copied: return 1 for `token` and 0 for all others.
    """
    if distributions is not None:
        return distributions[position]
    certain = np.zeros(size, dtype=int)
    certain[token] = 1
    return certain


def acceptance_of(target: Number, draft: Number) -> Number:
    """Return the chance that a draft token is accepted, from its two probabilities."""
    # A token of draft probability 0 cannot have been drawn, so treat it as a copied one.
    return min(1, target / draft) if draft else target


def surplus_of(
    target_probs: Distribution, draft_probs: Distribution, weight: Number = 1
) -> Distribution:
    """Return max(0, weight * target_probs - draft_probs), [vocab], not normalised."""
    difference = weight * np.asarray(target_probs) - np.asarray(draft_probs)
    return np.maximum(difference, 0)


def residual_of(
    target_probs: Distribution, draft_probs: Distribution, weight: Number = 1
) -> Distribution:
    """Return the weights [vocab] from which to draw the replacement of a rejected token.

    These are `surplus_of` with the same arguments. If both distributions agree up to rounding, all
    of these are 0, and the target's own distribution is returned instead.
    """
    surplus = surplus_of(target_probs, draft_probs, weight)
    return surplus if (surplus > 0).any() else target_probs
