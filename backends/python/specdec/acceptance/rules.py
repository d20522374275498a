"""Verification by probabilities: how much of a draft stands, and what follows it.

`draft[i]` was drawn from `draft_laws[i]`, the draft's own distribution behind draft[:i] after all
warping; a draft that was not drawn but looked up has no laws (None), which is a law of one token.
`target_laws` has one more entry than the draft: the target's distribution behind draft[:i].
The rules are generic in the numbers, so that tests run them on fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from specdec.acceptance.chance import Chance, Law, Number
from specdec.acceptance.exact import Verdict

Rule = Callable[[Sequence[int], "Sequence[Law] | None", Sequence[Law], Chance], Verdict]


def verify_by_rejection(
    draft: Sequence[int],
    draft_laws: Sequence[Law] | None,
    target_laws: Sequence[Law],
    chance: Chance,
) -> Verdict:
    """Token by token; the output follows the target's law (Leviathan et al., Chen et al. 2023).

    A token stands with probability min(1, p / q); the first that does not is replaced by a draw
    from what the target has more of than the draft.
    """
    for place, token in enumerate(draft):
        target_law = target_laws[place]
        draft_law = law_at(draft_laws, place, token, len(target_law))
        if not chance.happens(acceptance_of(target_law[token], draft_law[token])):
            replacement = chance.draw(residual_of(target_law, draft_law))
            return Verdict((*draft[:place], replacement), place)
    return Verdict((*draft, chance.draw(target_laws[len(draft)])), len(draft))


def verify_as_block(
    draft: Sequence[int],
    draft_laws: Sequence[Law] | None,
    target_laws: Sequence[Law],
    chance: Chance,
) -> Verdict:
    """All tokens together: the same law, and never fewer accepted (Sun et al. 2025).

    Every beginning of the draft gets a decision of its own, and the longest that stands is kept;
    one that fails does not end the search.
    """
    size = len(draft)
    joint: Number = 1
    num_accepted, weight = 0, joint
    for place in range(size):
        token, target_law = draft[place], target_laws[place]
        draft_law = law_at(draft_laws, place, token, len(target_law))
        # As in acceptance_of: a token of draft probability 0 counts as certain.
        joint = joint * target_law[token] / (draft_law[token] or 1)
        joint = min(joint, 1)
        stands = joint
        if place + 1 < size:
            following = target_laws[place + 1]
            guess = law_at(draft_laws, place + 1, draft[place + 1], len(following))
            surplus = sum(surplus_of(following, guess, joint))
            remainder = surplus + 1 - joint
            stands = surplus / remainder if remainder else 0
        if chance.happens(stands):
            num_accepted, weight = place + 1, joint
    if num_accepted == size:
        return Verdict((*draft, chance.draw(target_laws[size])), size)
    target_law = target_laws[num_accepted]
    draft_law = law_at(draft_laws, num_accepted, draft[num_accepted], len(target_law))
    replacement = chance.draw(residual_of(target_law, draft_law, weight))
    return Verdict((*draft[:num_accepted], replacement), num_accepted)


TYPICAL_FLOOR = 0.3
TYPICAL_SHARE = 0.09
"""Medusa's defaults: posterior_threshold and posterior_alpha (Cai et al. 2024, section 2.3.1)."""


def verify_as_typical(
    draft: Sequence[int],
    draft_laws: Sequence[Law] | None,
    target_laws: Sequence[Law],
    chance: Chance,
) -> Verdict:
    """LOSSY: a token stands where the target finds it likely enough for how sure it is itself.

    That is p > min(0.3, 0.09 exp(-H)), H the entropy of the target's law in nats.
    """
    del draft_laws  # What the draft thought of it does not matter.
    for place, token in enumerate(draft):
        law = np.asarray(target_laws[place], dtype=np.float64)
        positive = law[law > 0]
        entropy = -float((positive * np.log(positive)).sum())
        if law[token] <= min(TYPICAL_FLOOR, TYPICAL_SHARE * math.exp(-entropy)):
            return Verdict((*draft[:place], chance.draw(target_laws[place])), place)
    return Verdict((*draft, chance.draw(target_laws[len(draft)])), len(draft))


RULES: dict[str, Rule] = {
    "rejection": verify_by_rejection,
    "block": verify_as_block,
    "typical": verify_as_typical,
}
"""By their names on the wire; `exact` needs no probabilities and lives in exact.py."""


def law_at(laws: Sequence[Law] | None, place: int, token: int, size: int) -> Law:
    """What the drafted token was drawn from: its law, or certainty where it was looked up."""
    if laws is not None:
        return laws[place]
    certain = np.zeros(size, dtype=int)
    certain[token] = 1
    return certain


def acceptance_of(target: Number, draft: Number) -> Number:
    """How likely a drafted token stands, from its probability in both laws."""
    # A token of probability 0 is never drawn; one given all the same is judged as a certain one.
    return min(1, target / draft) if draft else target


def surplus_of(target_law: Law, draft_law: Law, weight: Number = 1) -> Law:
    """What `weight` times the target has more of than the draft; not normalised."""
    difference = weight * np.asarray(target_law) - np.asarray(draft_law)
    return np.maximum(difference, 0)


def residual_of(target_law: Law, draft_law: Law, weight: Number = 1) -> Law:
    """Return the weights to draw a rejected token's replacement from; never all 0.

    The surplus is empty only where both laws agree up to rounding; then the target's own law is
    the answer.
    """
    surplus = surplus_of(target_law, draft_law, weight)
    return surplus if (surplus > 0).any() else target_law
