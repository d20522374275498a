"""Estimates of what the copy drafters would have proposed, from tokens that any drafter produced.

Beside a head's draft a copy is used only if it is longer, so a deeper draft leaves fewer copies.
Which tokens of a text copies cover hardly depends on the drafter of the other tokens. So copies are
counted by token, for all depths at once, in a look back at confirmed tokens. This compares all
choices on the same texts, also those that were not made for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from specdec.steering.acceptance_estimates import DraftResult
from specdec.steering.choices import COPY, EstimatedDrafter, Lead, least_beyond

Find = Callable[[int], Sequence[tuple[int, int]]]
"""Function from a position to a pair for each copy drafter: how many tokens it would have proposed
there, and how many of them were right. The drafter likeliest to be right comes first."""

HEAD_TOKENS = 2
"""Tokens assumed per round with a head's draft, in text generated without the head. The next copy
is looked for after them."""


def depths_of(leads: Iterable[Lead]) -> tuple[int, ...]:
    """Return, ascending, the lengths that a copy must exceed: 0, and one for each head's draft."""
    heads = (lead for lead in leads if lead.is_head)
    depths = {least_beyond(lead.depth(length)) for lead in heads for length in lead.lengths}
    return 0, *sorted(depths - {0})


def told(depth: int, num_tokens: int, num_copied: int, num_right: int) -> DraftResult:
    """Return the result of looking for a copy beyond `depth` in a round of `num_tokens`.

    `num_copied` and `num_right` are the copy's draft tokens and the accepted ones; 0 without a
    copy.
    """
    if num_copied:
        return DraftResult(EstimatedDrafter(COPY, depth), num_copied, num_copied, num_right)
    return DraftResult(EstimatedDrafter(COPY, depth), 0, 0, 0, num_rounds=num_tokens)


class CopyWatch:
    """Looks back for copies in one request's context, and reports each part once."""

    def __init__(self, leads: Iterable[Lead]) -> None:
        self._told_to = dict.fromkeys(depths_of(leads), 0)
        """Position up to which copies have been reported, by depth."""
        self._behind: dict[int, int] = {}
        """Position after a round with a head's draft, by each position in that round."""

    def begin(self, place: int) -> None:
        """Begin at position `place`; nothing is reported of tokens before it."""
        self._told_to = dict.fromkeys(self._told_to, place)

    def said(self, place: int, num_tokens: int) -> None:
        """Record a round from position `place` that used a head's draft and no copy."""
        self._behind.update(dict.fromkeys(range(place, place + num_tokens), place + num_tokens))

    def look_back(self, end: int, max_tokens: int, find: Find) -> list[DraftResult]:
        """Return what is unreported of the latest `max_tokens` of a text that ends at `end`.

        A copy that is right up to `end` and goes on is reported later, once its accepted length is
        known. A copy that was right in full is reported at once, even if the target's own token
        after it is still to come.
        """
        found: dict[int, Sequence[tuple[int, int]]] = {}
        offers: list[DraftResult] = []
        for depth, told_to in self._told_to.items():
            place, num_without = max(told_to, end - max_tokens), 0
            while place < end:
                if place not in found:
                    found[place] = find(place)
                longer = (each for each in found[place] if each[0] > depth)
                num_copied, num_right = next(longer, (0, 0))
                if num_copied > num_right == end - place:
                    break
                if not num_copied:
                    behind = min(self._behind_round(place, depth), end)
                    num_without, place = num_without + behind - place, behind
                    continue
                if num_without:
                    offers.append(told(depth, num_without, 0, 0))
                offers.append(told(depth, num_right + 1, num_copied, num_right))
                num_without, place = 0, place + num_right + 1
            if num_without:
                offers.append(told(depth, num_without, 0, 0))
            self._told_to[depth] = place
        first = min(self._told_to.values())
        self._behind = {place: each for place, each in self._behind.items() if place >= first}
        return offers

    def _behind_round(self, place: int, depth: int) -> int:
        """Return the position after a round from `place` without a copy."""
        if not depth:
            return place + 1
        return self._behind.get(place, place + HEAD_TOKENS)
