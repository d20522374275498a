"""Verification by equality: the target's own choice at each drafted position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Verdict(NamedTuple):
    """What a round yields: accepted drafts and then the target's own next token."""

    tokens: tuple[int, ...]
    num_accepted: int


def verify_chain(draft: Sequence[int], choices: Sequence[int]) -> Verdict:
    """Keeps the drafts that the target chose too, then its first own token.

    `choices[i]` is the target's token after the context and draft[:i]; one more than drafts. That
    last one is the correction after the first disagreement, or the bonus token when all drafts
    stand. With greedy choices the result is what the target alone would have said (Leviathan et
    al. 2023, section 2.3, at temperature 0).
    """
    num_accepted = 0
    while num_accepted < len(draft) and draft[num_accepted] == choices[num_accepted]:
        num_accepted += 1
    return Verdict(tuple(choices[: num_accepted + 1]), num_accepted)
