"""Keeps a drafter out of the first round."""

from __future__ import annotations

from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.rounds import Round
from specdec.token_ids import TokenIds


class LateDrafter:
    """A drafter that skips the first round, and asks another drafter in all later ones.

    The first token must not wait for a draft model to process the prompt. Copied tokens would only
    add rows to a large pass: right after a chat template they are hardly ever accepted.
    """

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._is_first_round = True

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        return NO_PROPOSAL if self._is_first_round else self._drafter.propose(context, max_tokens)

    def observe(self, confirmed: Round) -> None:
        self._is_first_round = False
        self._drafter.observe(confirmed)
