"""The verification mode `exact`: a draft token is accepted if it is the target's own choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Verdict(NamedTuple):
    """The result of a verification."""

    tokens: tuple[int, ...]
    """The accepted draft tokens, then the target's own token."""
    num_accepted: int
    """Number of accepted draft tokens."""


def verify_chain(draft: Sequence[int], choices: Sequence[int]) -> Verdict:
    """Accept draft tokens up to the first that differs from the target's choice.

    `choices[i]` is the target's token after the context and `draft[:i]`, so there is one more
    choice than draft tokens. The last token of the result is the target's own: the correction of
    the first rejected draft token, or a bonus token if all were accepted. With greedy choices the
    tokens are those of the target without speculation (Leviathan et al. 2023, section 2.3, at
    temperature 0).
    """
    num_accepted = 0
    while num_accepted < len(draft) and draft[num_accepted] == choices[num_accepted]:
        num_accepted += 1
    return Verdict(tuple(choices[: num_accepted + 1]), num_accepted)
