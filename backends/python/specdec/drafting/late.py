"""Keeps a drafter out of the first round."""

from __future__ import annotations

from specdec.drafting.protocol import NO_PROPOSAL, Drafter, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round


class LateDrafter:
    """Runs another drafter from the second round on; the first round has no draft.

    The first token must not wait for a draft model to process the prompt. Nor should copied tokens
    add rows to a pass that has many already: after a chat template they are hardly ever accepted.
    """

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._is_first_round = True

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        return NO_PROPOSAL if self._is_first_round else self._drafter.propose(context, max_tokens)

    def observe(self, confirmed: Round) -> None:
        self._is_first_round = False
        self._drafter.observe(confirmed)
