"""Choose between the draft of a head and what the copy drafters propose."""

from __future__ import annotations

from collections.abc import Iterable

from specdec.drafting.grammar import GrammarDrafter
from specdec.drafting.protocol import Drafter, Proposal
from specdec.steering.choices import least_beyond
from specdec.token_ids import TokenIds


def copy_beside(
    own: Proposal, copying: Iterable[Drafter], context: TokenIds, max_tokens: int
) -> Proposal | None:
    """Return the copy that replaces the draft `own` of a head; None if `own` is better.

    The first copy that is long enough is taken. Tokens that the request's guide forces are taken
    unless `own` begins with them: no other tokens can come, and `own` may know what follows.
    """
    beyond = least_beyond(max(own.depths, default=0))
    for drafter in copying:
        found = drafter.propose(context, max_tokens)
        if isinstance(drafter, GrammarDrafter):
            is_better = own.tokens[: len(found.tokens)] != found.tokens
        else:
            is_better = max(found.depths, default=0) > beyond
        if is_better:
            return found
    return None
