"""What copying finds in a text, for whoever drafts beside it.

Beside a head only copies that go beyond its guesses are taken, the fewer the deeper it guesses.
Which tokens of a text they cover hardly depends on who says the others. So it is kept by token, as
if those were said one a round, and of every text for all depths at once, by looking back at what
was said. Choices are then compared on the same texts, and one that was long not made is known as
well as the one that was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from specdec.control.acceptance_book import Offer
from specdec.control.choices import Lead, copies_beyond, least_beyond

Find = Callable[[int], tuple[int, int]]
"""Of a place in the text: how many tokens copying would have offered, and how many of them were
said."""

HEAD_TOKENS = 2
"""That a round beside a head says without a copy, in a text that was said without the head: the
next copy is looked for behind them."""


def depths_of(leads: Iterable[Lead]) -> tuple[int, ...]:
    """Copies longer than these are told apart: than none, and than the guesses of each head."""
    heads = (lead for lead in leads if lead.is_head)
    depths = {least_beyond(lead.depth(length)) for lead in heads for length in lead.lengths}
    return 0, *sorted(depths - {0})


class CopyWatch:
    """Of one request. Places are counted from the beginning of its text."""

    def __init__(self, leads: Iterable[Lead]) -> None:
        self._told_to = dict.fromkeys(depths_of(leads), 0)
        """By depth: up to where it is told what copying found."""
        self._known: dict[int, tuple[int, int]] = {}
        """As Find says, of rounds in which it was asked."""
        self._behind: dict[int, int] = {}
        """Where rounds beside a head ended, by where they began."""

    def begin(self, place: int) -> None:
        """What is said before it tells nothing."""
        self._told_to = dict.fromkeys(self._told_to, place)

    def said(
        self, place: int, num_tokens: int, depth: int, num_copied: int, num_right: int
    ) -> Offer:
        """A round that began at `place`, in which a copy beyond `depth` would have been taken.

        `num_copied`, `num_right`: of the one that was; 0 where there was none. Returns what it
        tells of this depth by itself, for a text that cannot be looked back at.
        """
        if num_copied or not depth:
            self._known[place] = num_copied, num_right
        if depth:
            self._behind[place] = place + num_tokens
        return _offer(depth, num_copied, num_right) or _nothing(depth, num_tokens)

    def look_back(self, end: int, max_tokens: int, find: Find) -> list[Offer]:
        """What was not told of the latest `max_tokens`, of a text that ends at `end`.

        How far a copy that reaches the end would have gone is to be seen: it is told later. Of one
        that stood to its end the target's own token may be yet to come.
        """
        offers: list[Offer] = []
        for depth, told_to in self._told_to.items():
            place, num_without = max(told_to, end - max_tokens), 0
            while place < end:
                if place not in self._known:
                    self._known[place] = find(place)
                num_copied, num_right = self._known[place]
                if num_copied > max(depth, num_right) and num_right == end - place:
                    break
                offer = _offer(depth, num_copied, num_right)
                if offer is None:
                    behind = min(self._behind_round(place, depth), end)
                    num_without += behind - place
                    place = behind
                else:
                    offers.append(offer)
                    place += num_right + 1
            if num_without:
                offers.append(_nothing(depth, num_without))
            self._told_to[depth] = place
        first = min(self._told_to.values())
        self._known = {place: each for place, each in self._known.items() if first <= place < end}
        self._behind = {place: each for place, each in self._behind.items() if place >= first}
        return offers

    def _behind_round(self, place: int, depth: int) -> int:
        """Where a round without a copy ends."""
        if not depth:
            return place + 1
        return self._behind.get(place, place + HEAD_TOKENS)


def _offer(depth: int, num_copied: int, num_right: int) -> Offer | None:
    if num_copied <= depth:
        return None
    return Offer(copies_beyond(depth), num_copied, num_copied, num_right)


def _nothing(depth: int, num_tokens: int) -> Offer:
    return Offer(copies_beyond(depth), 0, 0, 0, num_rounds=num_tokens)
