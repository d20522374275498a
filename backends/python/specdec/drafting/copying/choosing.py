"""Choose between the draft of a head and what the copy drafters propose."""

from __future__ import annotations

from collections.abc import Iterable

from specdec.drafting.grammar import GrammarDrafter
from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.steering.choices import least_beyond
from specdec.token_ids import TokenIds


def better_copy(
    own: Proposal, copying: Iterable[Drafter], context: TokenIds, max_tokens: int
) -> Proposal | None:
    """Return the copy that replaces the draft `own` of a head; None if `own` is better.

    The first copy that is long enough is taken. Tokens that the request's guide forces come in any
    case, so a draft that does not begin with them is no use: they are taken themselves then.
    """
    forced = NO_PROPOSAL
    beyond = least_beyond(max(own.depths, default=0))
    for drafter in copying:
        found = drafter.propose(context, max_tokens)
        if isinstance(drafter, GrammarDrafter):
            forced = found
        elif max(found.depths, default=0) > beyond and _begins_with(found, forced):
            return found
    return None if _begins_with(own, forced) else forced


def _begins_with(draft: Proposal, forced: Proposal) -> bool:
    """Return whether a path of the draft begins with the forced tokens."""
    return len(draft.draft.path(forced.tokens)) == len(forced.tokens)
