"""A drafter from the second round on."""

from __future__ import annotations

from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round


class LateDrafter:
    """Leaves the first round to the target.

    The first token must not wait for another prompt to be read, nor for rows of copies in a pass of
    many rows already: behind a chat template they are hardly ever right.
    """

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._is_first_round = True

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        return NO_PROPOSAL if self._is_first_round else self._drafter.propose(context, max_tokens)

    def observe(self, confirmed: Round) -> None:
        self._is_first_round = False
        self._drafter.observe(confirmed)
