"""Estimates of what the copy drafters would have proposed, from tokens that any drafter produced.

Whether a copy covers a token hardly depends on which drafter produced the tokens around it. So
copies are counted by token, in a look back at confirmed tokens. All choices are then compared on
the same texts, even a choice that was last made long ago. Beside a head's draft only long copies
are used, so these are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdec.steering.acceptance_estimates import DraftResult
from specdec.steering.choices import COPIES, LONG_COPIES, EstimatedDrafter

Find = Callable[[int], Sequence[tuple[int, int]]]
"""Function from a position to a pair for each copy drafter: how many tokens it would have proposed
there, and how many of them were accepted. The preferred drafter comes first."""

HEAD_TOKENS = 2
"""Tokens assumed of a round with a head's draft; the next long copy is looked for after them."""


def copy_result(
    drafter: EstimatedDrafter, num_tokens: int, num_copied: int, num_accepted: int
) -> DraftResult:
    """Return the result of looking for a copy in a round of `num_tokens`.

    `num_copied` and `num_accepted` are the copy's draft tokens and the accepted ones; 0 without a
    copy.
    """
    if num_copied:
        return DraftResult(drafter, num_copied, num_copied, num_accepted)
    return DraftResult(drafter, 0, 0, 0, num_rounds=num_tokens)


class CopyWatch:
    """Looks back for copies in one request's context, and reports each part once."""

    def __init__(self) -> None:
        self._reported_to: dict[EstimatedDrafter, int] = {COPIES: 0, LONG_COPIES: 0}
        """Position up to which copies have been reported."""

    def begin(self, position: int) -> None:
        """Begin at `position`; nothing is reported of tokens before it."""
        self._reported_to = dict.fromkeys(self._reported_to, position)

    def look_back(self, end: int, max_tokens: int, find: Find) -> list[DraftResult]:
        """Return the unreported results for the last `max_tokens` tokens of a text.

        The text ends at position `end`, and `find` gives the copies at a position.

        A copy that goes on, and whose tokens up to `end` were all accepted, is reported later, once
        its accepted length is known. A copy that was accepted in full is reported at once, although
        the target's own token after it may still be missing. A position without a copy is reported
        at once too.
        """
        found: dict[int, Sequence[tuple[int, int]]] = {}
        results: list[DraftResult] = []
        for drafter, reported_to in self._reported_to.items():
            position, num_without = max(reported_to, end - max_tokens), 0
            while position < end:
                if position not in found:
                    found[position] = find(position)
                longer = (each for each in found[position] if each[0] > drafter.beyond)
                num_copied, num_accepted = next(longer, (0, 0))
                if num_copied > num_accepted == end - position:
                    break
                if not num_copied:
                    step = HEAD_TOKENS if drafter.beyond else 1
                    num_without, position = num_without + step, position + step
                    continue
                if num_without:
                    results.append(copy_result(drafter, num_without, 0, 0))
                results.append(copy_result(drafter, num_accepted + 1, num_copied, num_accepted))
                num_without, position = 0, position + num_accepted + 1
            if num_without:
                results.append(copy_result(drafter, num_without, 0, 0))
            self._reported_to[drafter] = position
        return results
