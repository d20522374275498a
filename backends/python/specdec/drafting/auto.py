"""The plain rule for `drafter = auto`: what costs nothing first, the draft model if it pays."""

from __future__ import annotations

from specdec.control.gain import GainMeter
from specdec.drafting.protocol import Drafter, Proposal
from specdec.engines.protocol import TokenIds
from specdec.rounds import Round


class AutoDrafter:
    """Lookup when it matches, else the draft engine while its measured gain is above 1."""

    def __init__(self, lookup: Drafter, engine: Drafter | None, gain: GainMeter) -> None:
        self._lookup = lookup
        self._engine = engine
        self._gain = gain
        self._is_first_round = True

    def propose(self, context: TokenIds, max_tokens: int) -> Proposal:
        found = self._lookup.propose(context, max_tokens)
        if found.tokens or self._engine is None or not self._gain.should_draft():
            return found
        return self._engine.propose(context, max_tokens)

    def observe(self, confirmed: Round) -> None:
        # The first round also pays for the prompt, in both engines.
        if not self._is_first_round:
            self._gain.observe(confirmed)
        self._is_first_round = False
