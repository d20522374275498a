"""What copying finds in a text, for whoever drafts beside it.

Beside a head only copies that go beyond its guesses are taken, the fewer the deeper it guesses.
Which tokens of a text they cover hardly depends on who says the others. So it is counted by token,
for all depths at once, by looking back at what was said, whoever said it. Choices are then compared
on the same texts, and one that was long not made is known as well as the one that was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from specdec.control.acceptance_book import Offer
from specdec.control.choices import Lead, copies_beyond, least_beyond

Find = Callable[[int], Sequence[tuple[int, int]]]
"""Of a place in the text: how many tokens each who copies would have offered, and how many of them
were said; the likeliest to be right first."""

HEAD_TOKENS = 2
"""That a round beside a head says without a copy, in a text that was said without the head: the
next copy is looked for behind them."""


def depths_of(leads: Iterable[Lead]) -> tuple[int, ...]:
    """Copies longer than these are told apart: than none, and than the guesses of each head."""
    heads = (lead for lead in leads if lead.is_head)
    depths = {least_beyond(lead.depth(length)) for lead in heads for length in lead.lengths}
    return 0, *sorted(depths - {0})


def told(depth: int, num_tokens: int, num_copied: int, num_right: int) -> Offer:
    """What a round of `num_tokens`, in which a copy beyond `depth` was looked for, says by itself.

    For a text that cannot be looked back at. `num_copied` is 0 where there was no copy.
    """
    if num_copied:
        return Offer(copies_beyond(depth), num_copied, num_copied, num_right)
    return Offer(copies_beyond(depth), 0, 0, 0, num_rounds=num_tokens)


class CopyWatch:
    """Of one request. Places are counted from the beginning of its text."""

    def __init__(self, leads: Iterable[Lead]) -> None:
        self._told_to = dict.fromkeys(depths_of(leads), 0)
        """By depth: up to where it is told what copying finds."""
        self._behind: dict[int, int] = {}
        """Of each place in a round of a head's guesses, where that ended."""

    def begin(self, place: int) -> None:
        """What is said before it tells nothing."""
        self._told_to = dict.fromkeys(self._told_to, place)

    def said(self, place: int, num_tokens: int) -> None:
        """A round that began at `place` was beside a head, and no copy was taken in it."""
        self._behind.update(dict.fromkeys(range(place, place + num_tokens), place + num_tokens))

    def look_back(self, end: int, max_tokens: int, find: Find) -> list[Offer]:
        """What was not told of the latest `max_tokens`, of a text that ends at `end`.

        How far a copy that reaches the end would have gone is to be seen: it is told later. Of one
        that stood to its end the target's own token may be yet to come.
        """
        found: dict[int, Sequence[tuple[int, int]]] = {}
        offers: list[Offer] = []
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
        """Where a round without a copy ends."""
        if not depth:
            return place + 1
        return self._behind.get(place, place + HEAD_TOKENS)
